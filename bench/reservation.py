"""Acquire and release by many processes at once, on a small site and on sites that have grown: does it take longer?

Each site is a database on one server. They take turns, so that what else the machine does hits all of them.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.db import connection

from bench.contender import Plan, Times, contend, hold
from bench.crowd import CROWD, FEW, LIVE, MANY, Place, add_environments, make_place
from bench.figures import percentile, spread
from bench.old_jobs import add_old_jobs
from bench.place import database, set_up
from compute_site.embedded.progress import step

ROUNDS = 4  # at most
START_SECONDS = 0.5  # by then every contender has its plan and is warm
SMALL = "new"


@dataclass
class Site:
    """One database, and what was measured there, round by round."""

    url: str
    rounds: list[list[Times]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # whole cycles a second, of all contenders together

    @property
    def name(self) -> str:
        return urlsplit(self.url).path.lstrip("/")

    def pooled(self, what: str) -> list[float]:
        return [one for times in self.rounds for each in times for one in getattr(each, what)]

    def acquired(self, number: int) -> list[float]:
        return [one for each in self.rounds[number] for one in each.acquire]


def measure(*, contenders: int, each: int, old: int) -> dict[str, Any]:
    """Milliseconds and cycles a second by site, how each grew against the small one, and the deadlocks."""
    place = make_place()
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # copies of the database are made next
    with _sites(old) as sites:
        _in_turns(sites, place, contenders, each)
        deadlocks = sum(_deadlocks(site.url) for site in sites.values())
    return {
        "machine": {"cores": len(os.sched_getaffinity(0)), "load_after": os.getloadavg()[0]},
        "contenders": contenders,
        "old_jobs": old,
        **{name: _figures(site) for name, site in sites.items()},
        "growth": {name: _growth(site, sites[SMALL]) for name, site in sites.items() if name != SMALL},
        "deadlocks": deadlocks,
    }


@contextmanager
def _sites(old: int) -> Iterator[dict[str, Site]]:
    """The small one, and copies of it that have more of one thing each."""
    url = os.environ["DATABASE_URL"]
    with ExitStack() as stack:
        sites = {SMALL: Site(url)}
        for name in ("old", "environments", "live"):
            sites[name] = Site(stack.enter_context(database(name, like=url)))
        step(f"reservation: adding {old} old jobs")
        add_old_jobs(sites["old"].url, old)
        step(f"reservation: adding {MANY - FEW} environments")
        add_environments(sites["environments"].url, MANY - FEW)
        yield sites


def _in_turns(sites: dict[str, Site], place: Place, contenders: int, each: int) -> None:
    """Rounds at every site in turns, by the same processes."""
    context = multiprocessing.get_context("spawn")
    pool = context.Pool(contenders, set_up, (os.environ["DATABASE_URL"],))
    try:
        for name, site in sites.items():
            pool.apply(hold, (site.name, place.crowd, CROWD if name == "live" else LIVE))
            _gather_statistics(site.url)
        rounds = max(1, min(ROUNDS, each // 4))
        for _ in range(rounds):
            for site in sites.values():
                _round(pool, site, place.main, contenders, max(1, each // rounds))
    finally:
        pool.terminate()
        pool.join()


def _round(pool: Pool, site: Site, environment: int, contenders: int, count: int) -> None:
    """All contenders at once, each in a process of the pool: nobody can take a second plan before all have begun."""
    plan = Plan(site.name, environment, count, time.time() + START_SECONDS)
    times = pool.map(contend, [plan] * contenders, chunksize=1)
    site.rounds.append(times)
    site.rates.append(contenders * count / (max(one.ended_at for one in times) - plan.begin_at))


def _figures(site: Site) -> dict[str, Any]:
    return {
        "acquire": spread(site.pooled("acquire")),
        "release": spread(site.pooled("release")),
        "cycles_per_second": median(site.rates),
    }


def _growth(site: Site, small: Site) -> dict[str, float]:
    """Medians of the ratios of rounds that were side by side."""
    pairs = [(site.acquired(number), small.acquired(number)) for number in range(len(site.rounds))]
    return {
        "median": median(median(one) / median(other) for one, other in pairs),
        "p99": median(percentile(one, 0.99) / percentile(other, 0.99) for one, other in pairs),
        "cycles": median(one / other for one, other in zip(site.rates, small.rates, strict=True)),
    }


def _gather_statistics(url: str) -> None:
    """As autovacuum leaves a site that has run for minutes: no site's tables were filled a moment ago."""
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("VACUUM ANALYZE")


def _deadlocks(url: str) -> int:
    with psycopg.connect(url) as server:
        row = server.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])
