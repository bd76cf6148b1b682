"""Reservations under contention: threads and processes on one host, and what happens without the lock."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import new_public_id
from environments import reservations
from environments.models import Environment, ReservedAmount
from environments.setup import create_environment
from tests.accounts.contention import (
    assert_nothing_was_given_twice,
    contend,
    contend_in_processes,
    make_rack,
)
from tests.accounts.told import assert_one_moment_adds_up
from tests.environments.conftest import UIDS, make_engine, make_host, take

pytestmark = pytest.mark.django_db(transaction=True)


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


def rows(statement: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def in_thread(environments: list[Environment], rounds: int, seed: int) -> Counter:
    try:
        return contend(environments, rounds, seed)
    finally:
        connection.close()


def test_processes_share_cores_devices_and_memory():
    """The short form: 32 processes are in tests/chaos."""
    found = contend_in_processes(
        make_rack(cores=12, devices=3, memory=12_000), processes=8, rounds=40, seed=1, look=0.1
    )
    assert found.outcomes.total() == 320
    assert found.outcomes["taken"] > 60
    assert found.outcomes["full"] > 10
    assert found.looks > 3
    assert found.most_live > 3
    assert found.deadlocks == 0


def test_threads_share_cores_devices_and_memory():
    environments = make_rack(cores=9, devices=3, memory=6000)
    with ThreadPoolExecutor(8) as threads:
        near = [threads.submit(in_thread, environments, 15, seed) for seed in range(8)]
        assert sum((future.result() for future in near), Counter()).total() == 120
    assert_nothing_was_given_twice(environments)
    assert assert_one_moment_adds_up(environments) == 0


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
