"""Acquire and release by many processes at once, on a new site and on one with many old jobs: does it grow?

Both are databases on one server, and take turns, so that what else the machine does hits both.
"""

import multiprocessing
import os
import time
from collections.abc import Mapping
from decimal import Decimal
from multiprocessing.pool import Pool
from typing import Any

import psycopg
from django.db import connection

from bench.contender import Plan, contend
from bench.figures import spread
from bench.old_jobs import add_old_jobs
from bench.place import database, set_up
from compute_site.embedded.progress import step
from environments.models import Core, Engine, Host
from environments.setup import create_environment

CORES = 16
WARM = 10  # the first ones open the connection and prepare the statements
ROUNDS = 4  # at most
START_SECONDS = 0.3  # by then every contender has its plan


def measure(*, contenders: int, each: int, old: int) -> dict[str, Any]:
    """Milliseconds to acquire and to release with no old jobs and with `old`, the growth, and the deadlocks."""
    environment = _prepare()
    with database("old", like=os.environ["DATABASE_URL"]) as grown:
        step(f"reservation: adding {old} old jobs")
        add_old_jobs(grown, old)
        urls = {"new": os.environ["DATABASE_URL"], "old": grown}
        found = _in_turns(urls, environment, contenders, each)
        deadlocks = sum(_deadlocks(url) for url in urls.values())
    figures = {name: {what: spread(times) for what, times in one.items()} for name, one in found.items()}
    growth = {
        key: figures["old"]["acquire"][key] / figures["new"]["acquire"][key] for key in ("median", "p99")
    }
    return {
        "machine": {"cores": len(os.sched_getaffinity(0)), "load_after": os.getloadavg()[0]},
        "contenders": contenders,
        "old_jobs": old,
        **figures,
        "growth": growth,
        "deadlocks": deadlocks,
    }


def _prepare() -> int:
    """A host that exists only in rows, with one environment that has all of it; returns the environment's key."""

    host = Host.objects.create(name="rows", cpu_count=CORES, memory_mib=65_536, disk_mib=500_000)
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(CORES))
    engine = Engine.objects.create(host=host, name="rows", endpoint="unix:///nowhere")
    environment = create_environment(
        engine, "main", ram_mib=32_768, disk_mib=100_000, prices={"cpu": Decimal("0.01")}
    )
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # a copy of the database is made next
    return environment.pk


def _in_turns(
    urls: Mapping[str, str], environment: int, contenders: int, each: int
) -> dict[str, dict[str, list[float]]]:
    """Rounds on every database in turns; all measured milliseconds by database and by what was done."""
    context = multiprocessing.get_context("spawn")
    pools = {name: context.Pool(contenders, set_up, (url,)) for name, url in urls.items()}
    try:
        found: dict[str, dict[str, list[float]]] = {name: {"acquire": [], "release": []} for name in urls}
        for pool in pools.values():
            _round(pool, environment, contenders, WARM)
        rounds = max(1, min(ROUNDS, each // 4))
        for _ in range(rounds):
            for name, pool in pools.items():
                for acquired, released in _round(pool, environment, contenders, max(1, each // rounds)):
                    found[name]["acquire"] += acquired
                    found[name]["release"] += released
        return found
    finally:
        for pool in pools.values():
            pool.terminate()
            pool.join()


def _round(
    pool: Pool, environment: int, contenders: int, count: int
) -> list[tuple[list[float], list[float]]]:
    """All contenders at once, each in a process of the pool: nobody can take a second plan before all have begun."""
    plan = Plan(environment, count, time.time() + START_SECONDS)
    return pool.map(contend, [plan] * contenders, chunksize=1)


def _deadlocks(url: str) -> int:
    with psycopg.connect(url) as server:
        row = server.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])
