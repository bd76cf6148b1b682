"""Jobs that were passed over for too long: what they need is kept for them, whoever else could use it."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from compute_site.core.db import all_rows
from compute_site.core.errors import CapacityUnavailable
from environments.models import Engine, ResourceKind, Slots, Tier
from environments.slots import can_hold, free_in, out_of_reach, read_reach
from environments.use import ResourceUse, job_places, uses_by_slug
from jobs.line import FULL_ACCOUNT, NOT_FULL, WAITS_SQL
from jobs.models import Job
from jobs.networks import GRANTED_SQL

MOST = 256  # of so many of a host the longest waiting ones are looked at
# Of these hosts. Those of an engine that starts nothing keep nothing; a benchmark has a rule of its own
# (jobs/measuring.py). Paid before free, the longest waiting first.
OVERDUE_SQL = f"""
WITH {FULL_ACCOUNT}
SELECT j.* FROM unnest(%(hosts)s::bigint[]) h (id)
 CROSS JOIN LATERAL (
    SELECT q.id, q.public_id, q.environment_id, q.tier, q.passed_over_since, (q.terms->'resources')::text
      FROM jobs_job q
      JOIN environments_environment e ON e.id = q.environment_id
      JOIN environments_engine g ON g.id = e.engine_id
     WHERE q.passed_over_since <= %(overdue_since)s AND {WAITS_SQL.format(now="%(now)s")} AND {NOT_FULL}
       AND {GRANTED_SQL}
       AND e.state <> 'retired' AND NOT e.benchmark AND g.host_id = h.id AND g.state = 'active'
       AND (g.id = ANY(%(engines)s) OR g.worker_seen_at > %(alive_since)s)
     ORDER BY (q.tier = 'free'), q.passed_over_since, q.id LIMIT {MOST}) j
"""
HEALTHY_SQL = """
SELECT o.resource_id, count(*) FROM environments_resourcedevice o JOIN environments_device d ON d.id = o.device_id
 WHERE o.environment_id = ANY(%s) AND d.health = 'healthy' GROUP BY o.resource_id
"""
Uses = Mapping[int, Mapping[str, ResourceUse]]


@dataclass(frozen=True, slots=True)
class Overdue:
    """A queued job that others have passed for longer than they may. `amounts` by resource slug."""

    job_id: int
    public_id: UUID
    environment_id: int
    tier: str
    passed_over_since: datetime
    amounts: Mapping[str, int]

    @property
    def rank(self) -> tuple[bool, datetime, int]:
        """Paid before free; then the one that was passed over first."""
        return self.tier == Tier.FREE, self.passed_over_since, self.job_id


def read_overdue(engines: Collection[Engine], now: datetime) -> list[Overdue]:
    """The overdue jobs of the hosts of these engines, which live; the first of each host. One statement."""
    values = {
        "hosts": list({engine.host_id for engine in engines}),
        "engines": [engine.pk for engine in engines],
        "now": now,
        "overdue_since": now - timedelta(seconds=settings.MAX_BYPASS_SECONDS),
        "alive_since": now - timedelta(seconds=settings.WORKER_TTL_SECONDS),
        "cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT,
    }
    rows = all_rows(OVERDUE_SQL, values)
    return [Overdue(*row, json.loads(amounts)) for *row, amounts in rows]  # type: ignore[call-arg]


class Kept:
    """What is kept for overdue jobs of some hosts, as of `now`. Made before a reservation, asked after it, under one lock.

    A job that cannot fit even with nothing in use keeps nothing, it would keep it for ever; nor does one that no live
    worker can hold.
    """

    def __init__(self, engines: Collection[Engine], now: datetime, slots: Slots | None = None) -> None:
        """`engines`: what is kept on their hosts; of none nothing is read. `slots`: of the worker that reserves, whose
        cores and devices are kept by themselves. One statement; where jobs are overdue at most four more.
        """
        jobs = read_overdue(engines, now) if engines else []
        self._environments = {job.environment_id for job in jobs}
        self._before: Uses = uses_by_slug(self._environments) if jobs else {}
        healthy = healthy_devices(self._environments) if jobs else {}
        reach = read_reach(self._environments) if jobs else {}
        self._jobs = [
            job
            for job in jobs
            if may_ever_fit(job.amounts, job.tier, self._before[job.environment_id], healthy)
            and out_of_reach(reach[job.environment_id], job.amounts) is None
        ]
        self._slots = slots if self._jobs else None
        self._free_before = free_in(self._slots) if self._slots else {}
        # The jobs to which the worker's slots are of no use.
        self._beyond = {
            job.job_id
            for job in self._jobs
            if slots and not can_hold(reach[job.environment_id].get(slots.pk, {}), job.amounts)
        }

    def would_miss(self, job: Job, uses: Mapping[str, ResourceUse]) -> bool:
        """Whether one that goes before `job` would lack what `job` asks, whose environment is used like this; devices
        are taken for shared by their name.
        """
        return any(
            _would_lose(other, self._before[other.environment_id], job, uses)
            for other in self._before_it(job)
        )

    def check(self, job: Job) -> None:
        """Raises CapacityUnavailable when what was just reserved for `job` is missing now for one that goes before it."""
        ahead = self._before_it(job)
        if not ahead:
            return
        now = uses_by_slug(self._environments)
        free = free_in(self._slots) if self._slots else {}
        for other in ahead:
            before, after = self._before[other.environment_id], now[other.environment_id]
            slug = _lost(other, before, after, counted=other.job_id in self._beyond)
            slug = slug or self._lost_slot(other, free)
            if slug is None and _same_queue(other, job) and _no_place_left(other):
                slug = "jobs"
            if slug is not None:
                raise CapacityUnavailable(
                    f"kept for job {other.public_id}, which waited longer", resource=slug
                )

    def _before_it(self, job: Job) -> list[Overdue]:
        """Paid jobs wait for no free one; of two overdue jobs the one that was passed over first goes first."""
        own = next((other for other in self._jobs if other.job_id == job.pk), None)
        return [
            other
            for other in self._jobs
            if other is not own
            and not (other.tier == Tier.FREE and job.tier == Tier.PAID)
            and (own is None or other.rank < own.rank)
        ]

    def _lost_slot(self, job: Overdue, free: Mapping[tuple[int, str], int]) -> str | None:
        """The core or device resource of which the worker's slots have less for the job now, and less than it needs."""
        for slug, amount in job.amounts.items():
            before = self._free_before.get((job.environment_id, slug))
            if job.job_id in self._beyond or before is None:
                continue
            if free[job.environment_id, slug] < min(before, amount):
                return slug
        return None


def healthy_devices(environment_ids: Collection[int]) -> dict[int, int]:
    """How many healthy devices each device resource of these environments has, held or not."""
    return {resource: count for resource, count in all_rows(HEALTHY_SQL, [list(environment_ids)])}


def most(use: ResourceUse, tier: str, healthy: Mapping[int, int]) -> int:
    """What one job could get of the resource with nothing in use."""
    total = use.offered if tier == Tier.PAID else min(use.offered, use.free_tier_total or 0)
    return min(total, healthy.get(use.resource_id, 0)) if use.kind == ResourceKind.DEVICE else total


def may_ever_fit(
    amounts: Mapping[str, int], tier: str, uses: Mapping[str, ResourceUse], healthy: Mapping[int, int]
) -> bool:
    """Whether a job could get these amounts with nothing else in use."""
    return all(slug in uses and amount <= most(uses[slug], tier, healthy) for slug, amount in amounts.items())


def _would_lose(
    other: Overdue, theirs: Mapping[str, ResourceUse], job: Job, mine: Mapping[str, ResourceUse]
) -> bool:
    """As `_lost` after a reservation for `job` that is not made."""
    asked = job.terms["resources"]
    for slug, amount in other.amounts.items():
        use, taken = theirs[slug], asked.get(slug, 0)
        room = use.room(other.tier)
        if other.environment_id == job.environment_id:
            left = room - taken
        elif use.host_free is not None and slug in mine and use.shares_with(mine[slug]):
            left = min(room, use.host_free - taken)
        else:
            continue
        if left < min(room, amount):
            return True
    return False


def _lost(
    job: Overdue, before: Mapping[str, ResourceUse], after: Mapping[str, ResourceUse], *, counted: bool
) -> str | None:
    """The resource of which the job could get less now than before, and less than it needs; `counted`: what is
    counted alone, not cores and devices.
    """
    for slug, amount in job.amounts.items():
        if counted and before[slug].kind in (ResourceKind.CPU, ResourceKind.DEVICE):
            continue
        if after[slug].room(job.tier) < min(before[slug].room(job.tier), amount):
            return slug
    return None


def _same_queue(one: Overdue, other: Job) -> bool:
    return (one.environment_id, one.tier) == (other.environment_id, other.tier)


def _no_place_left(job: Overdue) -> bool:
    running, allowed = job_places([job.environment_id])[job.environment_id, job.tier]
    return allowed is not None and running >= allowed
