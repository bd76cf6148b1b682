"""The one guarded update behind every state machine."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from django.db import connection, models

from compute_site.core.db import ClockTimestamp, prepared

NOTHING: Mapping[str, Any] = {}


def move(
    model: type[models.Model],
    pk: int,
    to: str,
    transitions: Mapping[str, frozenset[str]],
    *,
    sources: Iterable[str] | None = None,
    where: Mapping[str, Any] = NOTHING,
    guard: models.Q | None = None,
    **fields: Any,
) -> bool:
    """Set `status` to `to` where the row is in a state that may go there and its guards hold; one statement.

    `where`: fields with the values that they must have; `guard`: any other condition. `sources` narrows the allowed
    states further. Returns whether this caller did it: False means that somebody was first, and nothing was changed.
    Callers write the event and decide what a False means.
    """
    allowed = {source for source, targets in transitions.items() if to in targets}
    if sources is not None:
        wanted = set(sources)
        if not wanted <= allowed:
            raise ValueError(f"{model.__name__}: no transition from {sorted(wanted - allowed)} to {to}")
        allowed = wanted
    values = {"status": to, **fields}
    if guard is None and all(map(_is_plain, values.values())):
        return _plain_update(model, pk, allowed, where, values)
    rows = model._default_manager.filter(guard or models.Q(), pk=pk, status__in=allowed, **where)
    if rows.query.count_active_tables() > 1:
        # Through a join Django selects the keys first: whoever changed the row while we waited would go unnoticed.
        raise ValueError(f"{model.__name__}: a guard on another table has to be an Exists, not a join")
    return rows.update(**values) == 1


def _is_plain(value: Any) -> bool:
    """A value, or the database's clock; not an expression that only Django can write as SQL."""
    return type(value) is ClockTimestamp or not hasattr(value, "resolve_expression")


def _plain_update(
    model: type[models.Model], pk: int, allowed: set[str], where: Mapping[str, Any], values: Mapping[str, Any]
) -> bool:
    """The same statement without Django's compiler, which takes a millisecond: a job moves nine times."""
    given = {name: value for name, value in values.items() if type(value) is not ClockTimestamp}
    clocks = tuple(name for name in values if name not in given)
    parameters = [_prepared(model, name, value) for name, value in given.items()]
    parameters += [pk, sorted(allowed)]
    parameters += [_prepared(model, name, value) for name, value in where.items()]
    with prepared(_statement(model, tuple(given), clocks, tuple(where)), parameters) as cursor:
        return cursor.rowcount == 1


@cache
def _statement(
    model: type[models.Model], given: tuple[str, ...], clocks: tuple[str, ...], where: tuple[str, ...]
) -> str:
    """The SQL that sets `given` to parameters and `clocks` to the time, for a key, some states, and what has to hold."""

    def columns(names: Iterable[str], text: str) -> list[str]:
        return [f"{connection.ops.quote_name(_field(model, name).column)} {text}" for name in names]

    changes = columns(given, "= %s") + columns(clocks, "= clock_timestamp()")
    conditions = columns(["pk"], "= %s") + columns(["status"], "= ANY(%s)") + columns(where, "= %s")
    table = connection.ops.quote_name(model._meta.db_table)
    return f"UPDATE {table} SET {', '.join(changes)} WHERE {' AND '.join(conditions)}"


def _field(model: type[models.Model], name: str) -> Any:
    return model._meta.pk if name == "pk" else model._meta.get_field(name)


def _prepared(model: type[models.Model], name: str, value: Any) -> Any:
    return _field(model, name).get_db_prep_save(value, connection)
