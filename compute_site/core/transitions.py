"""The one guarded update behind every state machine."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import models


def move(
    model: type[models.Model],
    pk: int,
    to: str,
    transitions: Mapping[str, frozenset[str]],
    *,
    sources: Iterable[str] | None = None,
    guard: models.Q | None = None,
    **fields: Any,
) -> bool:
    """Set `status` to `to` where the row is in a state that may go there and `guard` holds; one statement.

    `sources` narrows the allowed states further. Returns whether this caller did it: False means that somebody
    was first, and nothing was changed. Callers write the event and decide what a False means.
    """
    allowed = {source for source, targets in transitions.items() if to in targets}
    if sources is not None:
        wanted = set(sources)
        if not wanted <= allowed:
            raise ValueError(f"{model.__name__}: no transition from {sorted(wanted - allowed)} to {to}")
        allowed = wanted
    rows = model._default_manager.filter(guard or models.Q(), pk=pk, status__in=allowed)
    if rows.query.count_active_tables() > 1:
        # Through a join Django selects the keys first: whoever changed the row while we waited would go unnoticed.
        raise ValueError(f"{model.__name__}: a guard on another table has to be an Exists, not a join")
    return rows.update(status=to, **fields) == 1
