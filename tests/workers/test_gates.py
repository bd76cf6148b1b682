"""A gate is stood up only where it is known what has to be closed; nothing is asked of the engine otherwise."""

from typing import Any, cast

import pytest

from compute_site.core.errors import InfrastructureFailed
from environments.models import Engine
from tests.factories import Site, submit, take
from workers import gates, granting
from workers.engines import Connection

UNASKED = cast(Any, None)  # a client that answers nothing


@pytest.mark.parametrize("granted", [False, True])
def test_what_came_to_be_refused_after_the_job_was_taken_opens_no_gate(
    site: Site, user: Any, account: Any, granted: bool
) -> None:
    attempt = take(submit(user))
    link = Connection(site.engine, UNASKED, UNASKED)
    granting.refuse(site.engine, "as if")
    Engine.objects.filter(pk=site.engine.pk).update(network_granted=granted)
    with pytest.raises(
        InfrastructureFailed, match="are not known" if granted else "grants no network any more"
    ):
        gates.open_gate(link, attempt, {})
