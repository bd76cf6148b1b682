"""Database helpers: the database's clock, locks in one place, advisory locks, names of broken constraints."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar, cast

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, connection, models, transaction
from django.db.models import DateTimeField, Func

Model = TypeVar("Model", bound=models.Model)


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


def constraint_name(error: IntegrityError) -> str:
    """The name of the constraint that `error` broke, or an empty string."""
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""


def in_list(field: str, values: Iterable[str]) -> models.Q:
    """The condition of a CHECK that allows only `values` (a closed list of states)."""
    return models.Q(**{f"{field}__in": sorted(values)})
