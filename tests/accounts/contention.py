"""Many processes that reserve and release on one host at once, and what may be seen of it at any moment and at the end."""

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from compute_site.core.errors import CapacityUnavailable
from environments import reservations
from environments.models import Core, Device, Environment, Host
from environments.setup import create_environment
from tests.accounts.told import assert_one_moment_adds_up
from tests.environments.conftest import give_back, make_engine, take

READY = "tests.accounts.ready"
PAUSE = 0.5  # seconds between two looks, at most
MOST_HELD = 3  # by one process at a time
ASKED = (
    {"cpu": 1, "ram": 1000},
    {"cpu": 2, "gpu": 1, "ram": 500},
    {"cpu": 3, "ram": 4000},
    {"gpu": 2, "ram": 100},
)
# How far back a core or device was given out before the last one who had it gave it back.
TWICE = """
SELECT count(*) FROM (
    SELECT r.created_at AS taken, max(x.released_at) OVER (
               PARTITION BY {thing}_id ORDER BY r.created_at, x.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS given_back, lag(x.id) OVER (PARTITION BY {thing}_id ORDER BY r.created_at, x.id) AS before
      FROM environments_{table} x JOIN environments_reservation r ON r.id = x.reservation_id) y
 WHERE before IS NOT NULL AND (given_back IS NULL OR given_back > taken)
"""
# The largest sum there ever was, by resource, and of the memory of all of them.
LARGEST = """
WITH edges AS (
    SELECT {key} AS key, r.created_at AS at, a.amount FROM environments_reservedamount a
      JOIN environments_reservation r ON r.id = a.reservation_id WHERE {which}
    UNION ALL SELECT {key}, a.released_at, -a.amount FROM environments_reservedamount a
     WHERE a.released_at IS NOT NULL AND {which})
SELECT key, max(used) FROM (
    SELECT key, sum(amount) OVER (PARTITION BY key ORDER BY at, amount) AS used FROM edges) sums
 GROUP BY key
"""


@dataclass(frozen=True)
class Contention:
    """What came of it: outcomes by name, seconds of all together, looks while it went on, deadlocks."""

    outcomes: Counter[str]
    seconds: float
    looks: int
    most_live: int
    deadlocks: int

    def __str__(self) -> str:
        taken, full = self.outcomes["taken"], self.outcomes["full"]
        return (
            f"{taken} acquired and released, {full} refused and tried again, in {self.seconds:.1f} s:"
            f" {taken / self.seconds:.0f} a second; {self.looks} looks, up to {self.most_live} live;"
            f" {self.deadlocks} deadlocks"
        )


def make_rack(*, cores: int, devices: int, memory: int) -> list[Environment]:
    """A host with three environments on two engines: cores apart, devices in two of them each, all memory in each."""
    host = Host.objects.create(name="rack-a", cpu_count=cores, memory_mib=memory, disk_mib=10**6)
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(cores))
    names = [f"GPU-{number}" for number in range(devices)]
    for name in names:
        Device.objects.create(host=host, uuid=name)
    one, two = make_engine(host, "one"), make_engine(host, "two")
    third = cores // 3
    return [
        create_environment(
            engine, slug, cpu=range(first, last), ram_mib=memory, disk_mib=500_000,
            devices={"gpu": [names[(start + number) % devices] for number in range(devices * 2 // 3)]},
            prices={"cpu": 1},
        )
        for engine, slug, first, last, start in (
            (one, "a", 0, third, 0),
            (one, "b", third, 2 * third, devices // 3),
            (two, "c", 2 * third, cores, 2 * devices // 3),
        )
    ]  # fmt: skip


def contend(environments: Sequence[Environment], rounds: int, seed: int) -> Counter[str]:
    """One contender: each round reserves at random, or gives back what it has. Errors but a lack of room come out."""
    chance = random.Random(seed)
    held: list[UUID] = []
    done: Counter[str] = Counter()
    for _ in range(rounds):
        try:
            held.append(take(chance.choice(environments), **chance.choice(ASKED))[0])
            done["taken"] += 1
        except CapacityUnavailable:
            done["full"] += 1
        if held and (len(held) == MOST_HELD or chance.random() < 0.5):
            _give_back(held.pop(chance.randrange(len(held))), chance)
    for holder in held:
        _give_back(holder, chance)
    return done


def _give_back(holder: UUID, chance: random.Random) -> None:
    if chance.random() < 0.1:
        reservations.revoke(holder)
    give_back(holder)


def in_process(database: str, keys: list[int], rounds: int, seed: int) -> Counter[str]:
    """One contender in a process of its own, on the test database."""
    connection.settings_dict["NAME"] = database
    environments = list(Environment.objects.filter(pk__in=keys).select_related("engine__host").order_by("pk"))
    done = contend(environments, rounds, seed)
    connection.close_pool()  # type: ignore[attr-defined]
    return done


def contend_in_processes(
    environments: list[Environment], *, processes: int, rounds: int, seed: int, look: float = PAUSE
) -> Contention:
    """All of them at once, and a look at random moments; then every check of what has been."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([READY])
    chance, before, live = random.Random(seed), deadlocks(), [0]
    plan = connection.settings_dict["NAME"], [environment.pk for environment in environments], rounds
    with context.Pool(processes) as pool:
        began = time.monotonic()
        results = [pool.apply_async(in_process, (*plan, seed + number)) for number in range(processes)]
        while not all(result.ready() for result in results):
            live.append(assert_one_moment_adds_up(environments))
            time.sleep(chance.uniform(0, look))
        seconds = time.monotonic() - began
        outcomes = sum((result.get() for result in results), Counter())
    assert_nothing_was_given_twice(environments)
    assert assert_one_moment_adds_up(environments) == 0
    return Contention(outcomes, seconds, len(live) - 1, max(live), deadlocks() - before)


def assert_nothing_was_given_twice(environments: Sequence[Environment]) -> None:
    """By the rows' own intervals: no core or device twice at one time, no sum above its total, nothing left."""
    assert _rows(TWICE.format(table="reservedcore", thing="core")) == [(0,)]
    assert _rows(TWICE.format(table="reserveddevice", thing="device")) == [(0,)]
    totals = {resource.pk: resource.total for one in environments for resource in one.resources.all()}
    for resource, largest in _rows(LARGEST.format(key="a.resource_id", which="true")):
        assert largest <= totals[resource]
    for _, largest in _rows(LARGEST.format(key="a.host_id", which="a.kind = 'ram'")):
        assert largest <= environments[0].host.usable_memory_mib


def deadlocks() -> int:
    """Deadlocks that PostgreSQL has broken in this database."""
    found: int = _rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
    return found


def _rows(statement: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()
