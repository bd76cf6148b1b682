"""Jobs that were passed over for too long: what they need is kept for them, whoever else could use it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from compute_site.core.db import all_rows
from compute_site.core.errors import CapacityUnavailable
from environments.models import EngineState, EnvironmentState, ResourceKind, Slots, Tier
from environments.slots import free_in, out_of_reach
from environments.use import ResourceUse, free_amounts, job_places
from jobs.caps import full_accounts
from jobs.line import may_go
from jobs.models import Job

MOST = 256  # of so many the longest waiting ones are looked at
HEALTHY_SQL = """
SELECT o.resource_id, count(*) FROM environments_resourcedevice o JOIN environments_device d ON d.id = o.device_id
 WHERE o.environment_id = ANY(%s) AND d.health = 'healthy' GROUP BY o.resource_id
"""
Uses = Mapping[int, Mapping[str, ResourceUse]]


def is_overdue(job: Job, now: datetime) -> bool:
    """Whether others have passed the job for longer than they may."""
    since = job.passed_over_since
    return since is not None and since <= now - timedelta(seconds=settings.MAX_BYPASS_SECONDS)


class Kept:
    """What is kept for overdue jobs of one host, as of now. Made before a reservation, asked after it, under one lock.

    A job that cannot fit even with nothing in use keeps nothing: it would keep it for ever.
    """

    def __init__(
        self, keys: Collection[int], *, slots: Slots | None = None, beyond: Collection[int] = ()
    ) -> None:
        """`keys`: of the overdue jobs. Without any, nothing is read, now or later. `slots`: of the worker that reserves,
        whose cores and devices are kept by themselves; `beyond`: the jobs to which those are of no use. Nothing at all is
        kept for what no live worker can hold.
        """
        rows = Job.objects.filter(pk__in=keys).select_related("environment") if keys else []
        jobs = sorted(rows, key=_rank)
        self._environments = list({job.environment_id: job.environment for job in jobs}.values())
        self._before: Uses = free_amounts(self._environments) if jobs else {}
        healthy = healthy_devices([one.pk for one in self._environments]) if jobs else {}
        self._beyond = set(beyond)
        self._slots = slots if jobs else None
        self._free_before = free_in(self._slots) if self._slots else {}
        self._jobs = [
            job
            for job in jobs
            if _may_ever_fit(job, self._before[job.environment_id], healthy)
            and out_of_reach(job.environment, job.terms["resources"]) is None
        ]

    def would_miss(self, job: Job, now: datetime) -> bool:
        """Whether one that goes before `job` would lack what `job` asks; devices are taken for shared by their name."""
        own = is_overdue(job, now)
        uses = free_amounts([job.environment])[job.environment_id]
        return any(
            _would_lose(other, self._before[other.environment_id], job, uses)
            for other in self._jobs
            if _goes_before(other, job, overdue=own)
        )

    def check(self, job: Job) -> None:
        """Raises CapacityUnavailable when what was just reserved for `job` is missing now for one that goes before it."""
        own = any(other.pk == job.pk for other in self._jobs)
        ahead = [other for other in self._jobs if _goes_before(other, job, overdue=own)]
        if not ahead:
            return
        now = free_amounts(self._environments)
        free = free_in(self._slots) if self._slots else {}
        for other in ahead:
            before, after = self._before[other.environment_id], now[other.environment_id]
            slug = _lost(other, before, after, counted=other.pk in self._beyond) or self._lost_slot(
                other, free
            )
            if slug is None and _same_queue(other, job) and _no_place_left(other):
                slug = "jobs"
            if slug is not None:
                raise CapacityUnavailable(f"kept for job {other}, which waited longer", resource=slug)

    def _lost_slot(self, job: Job, free: Mapping[tuple[int, str], int]) -> str | None:
        """The core or device resource of which the worker's slots have less for the job now, and less than it needs."""
        for slug, amount in job.terms["resources"].items():
            before = self._free_before.get((job.environment_id, slug))
            if job.pk in self._beyond or before is None:
                continue
            if free[job.environment_id, slug] < min(before, amount):
                return str(slug)
        return None


def is_kept_from(job: Job, now: datetime) -> bool:
    """Whether a queued job (saved or not) would take what is kept for an overdue one of the same host."""
    engine = job.environment.engine
    alive = now - timedelta(seconds=settings.WORKER_TTL_SECONDS)
    overdue = Job.objects.filter(  # as workers/turns.py reads them
        Q(environment__engine=engine) | Q(environment__engine__worker_seen_at__gt=alive),
        may_go(now),
        passed_over_since__lte=now - timedelta(seconds=settings.MAX_BYPASS_SECONDS),
        environment__engine__host=engine.host_id,
        environment__benchmark=False,  # has a rule of its own, jobs/measuring.py
        environment__engine__state=EngineState.ACTIVE,
    )
    overdue = overdue.exclude(account__in=full_accounts()).exclude(
        environment__state=EnvironmentState.RETIRED
    )
    order = ("-tier", "passed_over_since", "pk")  # paid before free
    keys = list(overdue.exclude(pk=job.pk).order_by(*order).values_list("pk", flat=True)[:MOST])
    return bool(keys) and Kept(keys).would_miss(job, now)


def healthy_devices(environment_ids: Sequence[int]) -> dict[int, int]:
    """How many healthy devices each device resource of these environments has, held or not."""
    return {resource: count for resource, count in all_rows(HEALTHY_SQL, [list(environment_ids)])}


def most(use: ResourceUse, tier: str, healthy: Mapping[int, int]) -> int:
    """What one job could get of the resource with nothing in use."""
    total = use.offered if tier == Tier.PAID else min(use.offered, use.free_tier_total or 0)
    return min(total, healthy.get(use.resource_id, 0)) if use.kind == ResourceKind.DEVICE else total


def _rank(job: Job) -> tuple[bool, datetime | None, int]:
    return job.tier == Tier.FREE, job.passed_over_since, job.pk


def _may_ever_fit(job: Job, uses: Mapping[str, ResourceUse], healthy: Mapping[int, int]) -> bool:
    amounts = job.terms["resources"].items()
    return all(slug in uses and amount <= most(uses[slug], job.tier, healthy) for slug, amount in amounts)


def _goes_before(other: Job, job: Job, *, overdue: bool) -> bool:
    """Paid jobs wait for no free one; of two overdue jobs the one that was passed over first goes first."""
    if other.pk == job.pk or (other.tier == Tier.FREE and job.tier == Tier.PAID):
        return False
    return _rank(other) < _rank(job) if overdue else True


def _would_lose(
    other: Job, theirs: Mapping[str, ResourceUse], job: Job, mine: Mapping[str, ResourceUse]
) -> bool:
    """As `_lost` after a reservation for `job` that is not made."""
    asked = job.terms["resources"]
    for slug, amount in other.terms["resources"].items():
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
    job: Job, before: Mapping[str, ResourceUse], after: Mapping[str, ResourceUse], *, counted: bool
) -> str | None:
    """The resource of which the job could get less now than before, and less than it needs; `counted`: what is
    counted alone, not cores and devices.
    """
    for slug, amount in job.terms["resources"].items():
        if counted and before[slug].kind in (ResourceKind.CPU, ResourceKind.DEVICE):
            continue
        if after[slug].room(job.tier) < min(before[slug].room(job.tier), amount):
            return str(slug)
    return None


def _same_queue(one: Job, other: Job) -> bool:
    return (one.environment_id, one.tier) == (other.environment_id, other.tier)


def _no_place_left(job: Job) -> bool:
    running, allowed = job_places([job.environment_id])[job.environment_id, job.tier]
    return allowed is not None and running >= allowed
