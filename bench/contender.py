"""One of the processes that contend for a host: acquire and release, again and again."""

import random
import time
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction

from compute_site.core.models import new_public_id
from environments import reservations
from environments.models import Environment

UIDS = (2_000_500_000, 65_536)
WARM = 6  # the first ones prepare the statements


@dataclass(frozen=True)
class Plan:
    """What a contender does in a database: `count` times, from the moment `begin_at` (seconds since the epoch) on."""

    database: str
    environment_id: int
    count: int
    begin_at: float


@dataclass(frozen=True)
class Times:
    """Milliseconds of every transaction that acquired, and of every one that released; when the last one ended."""

    acquire: list[float]
    release: list[float]
    ended_at: float


def contend(plan: Plan) -> Times:
    """Carry out a plan, whatever database this process was at before."""
    use(plan.database)
    environment = Environment.objects.select_related("engine").get(pk=plan.environment_id)
    times = Times([], [], 0.0)
    for _ in range(WARM):
        _once(environment, times)
    times.acquire.clear()
    times.release.clear()
    time.sleep(max(0.0, plan.begin_at - time.time()))
    for _ in range(plan.count):
        _once(environment, times)
    return Times(times.acquire, times.release, time.time())


def hold(database: str, environment_id: int, count: int) -> None:
    """Reserve one core `count` times and keep it."""
    use(database)
    environment = Environment.objects.select_related("engine").get(pk=environment_id)
    for _ in range(count):
        _acquire(environment, {"cpu": 1, "ram": 64, "disk": 64})


def use(database: str) -> None:
    """Turn this process to another database of the same server."""
    if connection.settings_dict["NAME"] != database:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        connection.settings_dict["NAME"] = database


def _acquire(environment: Environment, amounts: dict[str, int]) -> UUID:
    holder = new_public_id()
    assert environment.engine.host_id is not None
    with transaction.atomic():
        reservations.lock_host(environment.engine.host_id)
        reservations.acquire(
            holder=holder, environment=environment, tier="paid", amounts=amounts, uid_range=UIDS
        )
    return holder


def _once(environment: Environment, times: Times) -> None:
    """As the scheduler and the steps do it: one transaction to acquire, two to release."""
    started = time.perf_counter()
    holder = _acquire(environment, {"cpu": random.choice((1, 2)), "ram": 256, "disk": 64})
    times.acquire.append((time.perf_counter() - started) * 1000)
    for release in (reservations.release_running, reservations.release_rest):
        started = time.perf_counter()
        with transaction.atomic():
            release(holder)
        times.release.append((time.perf_counter() - started) * 1000)
