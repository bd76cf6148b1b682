"""Reservations under contention: threads and processes on one host, and what happens without the lock."""

import multiprocessing
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import django
import pytest
from django.db import connection, transaction

from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import new_public_id
from environments import reservations
from environments.models import Environment, ReservedAmount, ReservedCore, ReservedDevice
from environments.setup import create_environment
from tests.environments.conftest import UIDS, give_back, make_engine, make_host, take

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = (
    {"cpu": 1, "ram": 1000},
    {"cpu": 2, "gpu": 1, "ram": 500},
    {"cpu": 3, "ram": 4000},
    {"gpu": 2, "ram": 100},
)
LARGEST_SUMS = """
WITH edges AS (
    SELECT resource_id, r.created_at AS at, a.amount FROM environments_reservedamount a
      JOIN environments_reservation r ON r.id = a.reservation_id
    UNION ALL SELECT resource_id, released_at, -amount FROM environments_reservedamount WHERE released_at IS NOT NULL)
SELECT resource_id, max(used) FROM (
    SELECT resource_id, sum(amount) OVER (PARTITION BY resource_id ORDER BY at, amount) AS used FROM edges) sums
 GROUP BY resource_id
"""
OVERLAPS = """
SELECT count(*) FROM environments_{table} a JOIN environments_{table} b ON a.{thing}_id = b.{thing}_id AND a.id < b.id
  JOIN environments_reservation ra ON ra.id = a.reservation_id
  JOIN environments_reservation rb ON rb.id = b.reservation_id
 WHERE tstzrange(ra.created_at, a.released_at) && tstzrange(rb.created_at, b.released_at)
"""


def make_site() -> list[Environment]:
    """Two engines on one host of 8 cores, 6 GiB and 2 GPUs: both environments offer the GPUs and all the memory."""
    host = make_host(memory=6144)
    return [
        create_environment(
            make_engine(host, name),
            name,
            cpu=cores,
            ram_mib=6144,
            disk_mib=50_000,
            devices={"gpu": ["GPU-rack-a-0", "GPU-rack-a-1"]},
            prices={"cpu": 1},
        )
        for name, cores in (("one", "0-3"), ("two", "4-7"))
    ]


def take_and_give_back(environments: list[Environment], rounds: int, seed: int) -> Counter:
    """Some rounds of one contender; errors other than a lack of room come out."""
    chance = random.Random(seed)
    done: Counter = Counter()
    for _ in range(rounds):
        try:
            holder, _ = take(chance.choice(environments), **chance.choice(ASKED))
        except CapacityUnavailable:
            done["full"] += 1
            continue
        done["taken"] += 1
        if chance.random() < 0.1:
            reservations.revoke(holder)
        give_back(holder)
    return done


def in_thread(environments: list[Environment], rounds: int, seed: int) -> Counter:
    try:
        return take_and_give_back(environments, rounds, seed)
    finally:
        connection.close()


def in_process(database: str, keys: list[int], rounds: int, seed: int) -> Counter:
    """One contender in a process of its own, on the test database."""
    connection.settings_dict["NAME"] = database
    environments = list(Environment.objects.filter(pk__in=keys).select_related("engine").order_by("pk"))
    done = take_and_give_back(environments, rounds, seed)
    connection.close_pool()  # type: ignore[attr-defined]
    return done


def rows(statement: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def deadlocks() -> int:
    return rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]


def check_nothing_was_given_twice(environments: list[Environment]) -> None:
    """By the rows' own intervals: no core or device twice at one time, no sum above its total, nothing left."""
    assert rows(OVERLAPS.format(table="reservedcore", thing="core")) == [(0,)]
    assert rows(OVERLAPS.format(table="reserveddevice", thing="device")) == [(0,)]
    totals = {resource.pk: resource.total for one in environments for resource in one.resources.all()}
    for resource, largest in rows(LARGEST_SUMS):
        assert largest <= totals[resource]
    host_wide = LARGEST_SUMS.replace(
        "SELECT resource_id, r.created_at", "SELECT 0 AS resource_id, r.created_at"
    )
    host_wide = host_wide.replace(
        "SELECT resource_id, released_at, -amount", "SELECT 0, released_at, -amount"
    )
    host_wide = host_wide.replace("= a.reservation_id", "= a.reservation_id WHERE a.kind = 'ram'")
    host_wide = host_wide.replace("IS NOT NULL)", "IS NOT NULL AND kind = 'ram')")
    assert rows(host_wide)[0][1] <= 6144
    for model in (ReservedAmount, ReservedCore, ReservedDevice):
        assert not model.objects.filter(released_at=None).exists()


def test_threads_and_processes_share_cores_devices_and_memory():
    environments = make_site()
    before = deadlocks()
    database = connection.settings_dict["NAME"]
    keys = [environment.pk for environment in environments]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(4, initializer=django.setup) as processes, ThreadPoolExecutor(8) as threads:
        far = [processes.apply_async(in_process, (database, keys, 25, 100 + seed)) for seed in range(4)]
        near = [threads.submit(in_thread, environments, 25, seed) for seed in range(8)]
        total = sum((future.result() for future in near), Counter())
        total = sum((result.get(60) for result in far), total)
    assert total["taken"] + total["full"] == 300
    assert total["taken"] > 60
    assert deadlocks() == before
    check_nothing_was_given_twice(environments)


def acquire_without_asking(environment: Environment) -> None:
    amounts = {"cpu": 1, "ram": 64}
    reservations.acquire(
        holder=new_public_id(), environment=environment, tier="paid", amounts=amounts, uid_range=UIDS
    )


def test_acquire_needs_the_lock_of_its_own_transaction():
    environment = make_site()[0]
    take(environment)  # a lock of an earlier transaction counts for nothing
    with pytest.raises(transaction.TransactionManagementError):
        acquire_without_asking(environment)
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        acquire_without_asking(environment)
    with pytest.raises(transaction.TransactionManagementError):
        reservations.lock_host(environment.host.pk)
    assert environment.reservations.count() == 1


def race(environment: Environment, lock) -> list[str]:
    """Two takes that both want all the licences, the first held open until the second has read; their outcomes."""
    outcomes, first_has_read = [], threading.Event()

    def contender(first: bool) -> None:
        try:
            with transaction.atomic():
                if not first:
                    first_has_read.wait(10)
                lock(environment.host.pk)
                reservations.acquire(
                    holder=new_public_id(),
                    environment=environment,
                    tier="paid",
                    amounts={"cpu": 1, "ram": 4000},
                    uid_range=(700 if first else 800, 10),
                )
                if first:
                    first_has_read.set()
                    time.sleep(0.3)  # the other must reach the lock, or without it book the same memory
            outcomes.append("taken")
        except CapacityUnavailable:
            outcomes.append("full")
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(contender, (True, False)))
    return sorted(outcomes)


def test_the_lock_makes_the_second_see_the_first():
    one = make_site()[0]
    assert race(one, reservations.lock_host) == ["full", "taken"]


def test_without_the_lock_memory_is_booked_twice():
    """The mutant: only the check of the lock is satisfied, nobody waits; cores differ, so no constraint can help."""
    one, two = make_site()

    outcomes: list[object] = []
    with ThreadPoolExecutor(1) as other:

        def unlocked_take(environment: Environment) -> None:
            try:
                with transaction.atomic():
                    reservations._locked.hosts = {
                        environment.host.pk: rows("SELECT pg_current_xact_id()::text")[0][0]
                    }
                    amounts = {"cpu": 1, "ram": 4000}
                    reservations.acquire(
                        holder=new_public_id(), environment=environment, tier="paid", amounts=amounts,
                        uid_range=(700 + environment.pk * 10, 10),
                    )  # fmt: skip
                    if environment is one:
                        outcomes.append(other.submit(in_own_connection, unlocked_take, two).result())
            except CapacityUnavailable:
                outcomes.append("full")

        unlocked_take(one)
    assert outcomes == [None]
    assert sum(ReservedAmount.objects.filter(kind="ram").values_list("amount", flat=True)) == 8000  # of 6144


def in_own_connection(function, *arguments) -> None:
    try:
        function(*arguments)
    finally:
        connection.close()
