"""The use that clients and operators are told, beside what the rows of the same moment add up to."""

from collections.abc import Iterable

from django.db import connection, transaction

from environments.models import Environment
from environments.reservations import free_amounts
from tests.accounts.recount import Rows, read


def assert_told_as_it_is(rows: Rows, environments: Iterable[Environment]) -> None:
    """`rows` were read in the snapshot that is read now."""
    for uses in free_amounts(environments).values():
        for use in uses.values():
            resource = rows.resources[use.resource_id]
            assert (use.used, use.used_free) == (rows.used[use.resource_id], rows.used_free[use.resource_id])
            if rows.environments[use.environment_id]["state"] != "retired":
                rooms = rows.room(resource, "paid"), rows.room(resource, "free")
                assert (use.free, use.free_tier_free) == rooms


def assert_one_moment_adds_up(environments: Iterable[Environment]) -> int:
    """While others reserve and release: no promise is broken, and what is told is true. Returns the live reservations."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        rows = read(cursor)
        assert list(rows.faults()) == []
        assert_told_as_it_is(rows, environments)
    return len(rows.reservations)
