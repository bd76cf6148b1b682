"""What concerns the database: its clock, locks in one place, advisory locks, names of broken constraints."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

import psycopg
from django.core.exceptions import ObjectDoesNotExist
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, connections, models, transaction
from django.db.models import DateTimeField, Func

Model = TypeVar("Model", bound=models.Model)


BY_KEY = "SELECT {columns} FROM {table} WHERE id = %s"


class ClockTimestamp(Func):
    """PostgreSQL's `clock_timestamp()`: the real time now, not the start of the transaction."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


def database_now() -> datetime:
    """The database's own clock. Liveness and leases are judged by it alone."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    assert row is not None
    return cast(datetime, row[0])


def require_transaction() -> None:
    """A lock outside a transaction is released at once: refuse it loudly."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("a row lock needs a transaction around it")


def lock(queryset: models.QuerySet[Model], *, skip_locked: bool = False) -> list[Model]:
    """Lock the rows of `queryset` in primary-key order, without blocking foreign-key inserts; returns them fresh.

    Read whatever depends on the lock in a *new* statement afterwards.
    """
    require_transaction()
    locked = queryset.select_for_update(no_key=True, skip_locked=skip_locked, of=("self",))
    return list(locked.order_by("pk"))


def lock_one(queryset: models.QuerySet[Model]) -> Model:
    """Lock exactly one row. Raises ObjectDoesNotExist."""
    rows = lock(queryset)
    if len(rows) != 1:
        raise ObjectDoesNotExist(f"{queryset.model.__name__}: {len(rows)} rows to lock, not 1")
    return rows[0]


def lock_key(model: type[Model], pk: int) -> Model:
    """As `lock_one` for the row with this key, without Django's compiler. Raises ObjectDoesNotExist."""
    require_transaction()
    return _one(model, f"{BY_KEY} FOR NO KEY UPDATE", pk)


def read_key(model: type[Model], pk: int) -> Model:
    """The row with this key, without Django's compiler. Raises ObjectDoesNotExist."""
    return _one(model, BY_KEY, pk)


def _one(model: type[Model], statement: str, pk: int) -> Model:
    rows = rows_of(model, statement, [pk])
    if not rows:
        raise ObjectDoesNotExist(f"{model.__name__}: there is no {pk}")
    return rows[0]


@contextmanager
def prepared(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Iterator[psycopg.Cursor]:
    """Run a statement as a prepared one on Django's own connection, in its transaction; its errors are Django's.

    For what runs with every job: PostgreSQL plans it a few times, and not each time again.
    """
    here = connections[DEFAULT_DB_ALIAS]  # the thread's own; its proxy looks it up each time
    here.ensure_connection()
    here.validate_no_broken_transaction()
    raw = here.connection
    raw.prepare_threshold = 0  # Django turns preparing off on its connections, because of outside poolers
    try:
        with here.wrap_database_errors, psycopg.Cursor(raw) as cursor:
            cursor.execute(statement, values)
            yield cursor
    finally:
        raw.prepare_threshold = None


def all_rows(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a prepared statement."""
    with prepared(statement, values) as cursor:
        return cursor.fetchall()


def first_row(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The first row of a prepared statement, or None."""
    return next(iter(all_rows(statement, values)), None)


def rows_of(model: type[Model], statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Model]:
    """Instances from a statement in SQL, whose `{columns}` and `{table}` are those of `model`.

    For what runs with every job: Django takes a millisecond or two to write such a statement and to read its rows.
    """
    names, columns, table, converters = _columns_of(model)
    found = [list(row) for row in all_rows(statement.format(columns=columns, table=table), values)]
    for row in found:
        for position, convert in converters:
            row[position] = convert(row[position], None, connection)
    return [model.from_db(DEFAULT_DB_ALIAS, names, row) for row in found]


@cache
def _columns_of(
    model: type[models.Model],
) -> tuple[list[str], str, str, list[tuple[int, Callable[..., Any]]]]:
    """Attributes, the list of columns, the table, and what has to be converted at which position (JSON)."""
    fields = model._meta.concrete_fields
    names = [field.attname for field in fields]
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    pairs = enumerate(field.get_db_converters(connection) for field in fields)
    table = connection.ops.quote_name(model._meta.db_table)
    return names, columns, table, [(position, one) for position, several in pairs for one in several]


@contextmanager
def advisory_lock(name: str) -> Iterator[bool]:
    """A session-wide lock by name; yields False at once when somebody else holds it.

    Periodic actions take one, so that two beats do a thing once. Never held inside a transaction of ours.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name])
        row = cursor.fetchone()
        held = bool(row and row[0])
        try:
            yield held
        finally:
            if held:
                cursor.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [name])


def wait_in_turn(name: str) -> None:
    """Until the end of the transaction nobody else gets past this with the same name.

    For those who would insert what excludes each other: PostgreSQL lets two such inserts wait for each other. Before
    any row lock.
    """
    require_transaction()
    first_row("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def constraint_name(error: IntegrityError) -> str:
    """The name of the constraint that `error` broke, or an empty string."""
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""


def in_list(field: str, values: Iterable[str]) -> models.Q:
    """The condition of a CHECK that allows only `values` (a closed list of states)."""
    return models.Q(**{f"{field}__in": sorted(values)})
