"""A gate is stood up only where it is known what has to be closed; nothing is asked of the engine otherwise."""

from typing import Any, cast
from uuid import uuid4

import pytest

from compute_site.core.errors import InfrastructureFailed
from environments.models import Engine
from tests.factories import Site, submit, take
from workers import gates, granting, runner
from workers.engines import Connection
from workers.steps import Run

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


@pytest.mark.parametrize("lost", [False, True])
def test_only_who_has_the_step_says_that_the_engine_grants_none(
    site: Site, user: Any, account: Any, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def no_gate(run: Run, image: Any) -> None:
        raise gates.NoGate("cannot_start", "its gate is gone: it says nothing")

    monkeypatch.setattr(runner, "prepare_and_start", no_gate)
    monkeypatch.setattr("workers.scanning.may_run", lambda run, image: True)
    monkeypatch.setattr("workers.images.local_image", lambda run: object())
    monkeypatch.setattr(runner, "clean", lambda run: None)
    monkeypatch.setattr(runner, "nudge", lambda engine: None)
    Engine.objects.filter(pk=site.engine.pk).update(network_granted=True)
    attempt = take(submit(user))
    lease = uuid4() if lost else attempt.lease
    assert lease is not None
    runner.advance(Run(attempt, attempt.job, lease, Connection(site.engine, UNASKED, UNASKED)))
    assert Engine.objects.get(pk=site.engine.pk).network_granted is lost
