"""Why a queued job does not run yet: computed from the rows of now, never guessed."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from compute_site.core.db import database_now
from environments.models import Engine, EngineState, EnvironmentState, Reservation, ReservationStatus, Tier
from environments.reservations import free_amounts
from environments.slots import out_of_reach
from jobs.models import Job, JobStatus

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def pending_reason(job: Job, now: datetime | None = None) -> str | None:
    """What a queued job waits for, in words (`needs 2 cpu, 1 free; third in line`); None when it is not queued.

    `job` comes with its environment, engine and host. Reads the use of its environment and its place in the queue.
    """
    if job.status != JobStatus.QUEUED:
        return None
    now = now or database_now()
    if job.not_before is not None and job.not_before > now:
        return f"retry after {_time(job.not_before)}"
    host = job.environment.engine.host
    if host is None:
        return _fleet_reason()
    reasons = [*engine_reasons(job.environment.engine, now), *_full_house(job), *_shortages(job)]
    reasons += filter(None, [out_of_reach(job.environment, job.terms["resources"])])
    if host.declared_gone_at is not None:
        reasons.insert(0, f"host {host} is gone: nothing starts there any more")
    if job.environment.state == EnvironmentState.RETIRED:
        reasons.insert(0, f"environment {job.environment} is retired")
    place = queue_place(job, now)
    if not reasons and place == 1:
        return "first in line; about to start"
    return "; ".join([*reasons, f"{ordinal(place)} in line"])


def _fleet_reason() -> str:
    """Jobs of the fleet leave the queue as soon as a unit is made of them; workers are waited for afterwards."""
    return "about to become a unit of the fleet" if settings.FLEET_ENABLED else "the fleet is off"


def engine_reasons(engine: Engine, now: datetime) -> Iterator[str]:
    """What of the engine itself keeps its jobs waiting; no statement is needed."""
    if engine.state != EngineState.ACTIVE:
        yield f"engine {engine.name} is {engine.state}: it starts nothing new"
    if not has_live_worker(engine, now):
        yield f"no live worker for engine {engine.name}"
    elif engine.unreachable_since is not None:
        yield f"engine {engine.name} does not answer since {_time(engine.unreachable_since)}"


def has_live_worker(engine: Engine, now: datetime) -> bool:
    """Whether a worker of the engine gave a sign of life within the time after which it counts as lost."""
    alive_after = now - timedelta(seconds=settings.WORKER_TTL_SECONDS)
    return engine.worker_seen_at is not None and engine.worker_seen_at >= alive_after


def queue_place(job: Job, now: datetime) -> int:
    """The job's place in the queue of its environment, from 1: paid before free, then first in first out."""
    ahead = Q(tier=job.tier, pk__lt=job.pk)
    if job.tier == Tier.FREE:
        ahead |= Q(tier=Tier.PAID)
    waiting = Job.objects.filter(environment_id=job.environment_id, status=JobStatus.QUEUED)
    return 1 + waiting.filter(ahead, Q(not_before__isnull=True) | Q(not_before__lte=now)).count()


def ordinal(number: int) -> str:
    """`first` to `tenth`, then digits: 11th, 21st, 22nd."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _shortages(job: Job) -> Iterator[str]:
    uses = free_amounts([job.environment])[job.environment_id]
    for slug, amount in job.terms["resources"].items():
        if slug not in uses:
            yield f"resource {slug} is no longer offered"
        elif amount > (free := uses[slug].room(job.tier)):
            yield f"needs {amount} {slug}, {free} free"


def _full_house(job: Job) -> Iterator[str]:
    """The most jobs at once that the environment, or its free tier, allows."""
    environment = job.environment
    holder = environment if job.tier == Tier.PAID else getattr(environment, "free_tier", None)
    if holder is None or holder.max_jobs is None:
        return
    live = Reservation.objects.filter(environment=environment, tier=job.tier, status=ReservationStatus.HELD)
    running = live.filter(released_at__isnull=True, exited_at__isnull=True).count()
    if running >= holder.max_jobs:
        yield f"{running} of at most {holder.max_jobs} {job.tier} jobs run"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
