"""One of the processes that contend for a host: acquire and release, again and again."""

import random
import time
from dataclasses import dataclass

from django.db import transaction

from compute_site.core.models import new_public_id
from environments import reservations
from environments.models import Environment

UIDS = (2_000_500_000, 65_536)


@dataclass(frozen=True)
class Plan:
    """What a contender does: `count` times, from the moment `begin_at` (seconds since the epoch) on."""

    environment_id: int
    count: int
    begin_at: float


def contend(plan: Plan) -> tuple[list[float], list[float]]:
    """Carry out a plan; returns the milliseconds of every transaction that acquired, and of every one that released."""
    environment = Environment.objects.select_related("engine").get(pk=plan.environment_id)
    acquired: list[float] = []
    released: list[float] = []
    time.sleep(max(0.0, plan.begin_at - time.time()))
    for _ in range(plan.count):
        _once(environment, acquired, released)
    return acquired, released


def _once(environment: Environment, acquired: list[float], released: list[float]) -> None:
    """As the scheduler and the steps do it: one transaction to acquire, two to release."""
    holder = new_public_id()
    amounts = {"cpu": random.choice((1, 2)), "ram": 256, "disk": 64}
    assert environment.engine.host_id is not None
    started = time.perf_counter()
    with transaction.atomic():
        reservations.lock_host(environment.engine.host_id)
        reservations.acquire(
            holder=holder, environment=environment, tier="paid", amounts=amounts, uid_range=UIDS
        )
    acquired.append((time.perf_counter() - started) * 1000)
    for release in (reservations.release_running, reservations.release_rest):
        started = time.perf_counter()
        with transaction.atomic():
            release(holder)
        released.append((time.perf_counter() - started) * 1000)
