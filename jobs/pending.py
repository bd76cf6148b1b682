"""Why a job does not run yet: computed from the rows of now, never guessed."""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings

from compute_site.core.db import database_now
from environments.alone import in_the_way
from environments.models import Engine, EngineState, Environment, EnvironmentState, ResourceKind
from environments.slots import out_of_reach
from environments.use import ResourceUse, free_amounts, job_places
from jobs.caps import account_reason
from jobs.estimate import Estimates
from jobs.line import place_in_line
from jobs.measuring import before_a_benchmark
from jobs.models import Job, JobEvent, JobStatus
from jobs.overdue import healthy_devices, is_kept_from, most

FOR_WORKERS = "waiting for workers"  # the phase of a job that the fleet has, but no remote worker yet
WAITS = "waits"  # the event that says what such a job waits for
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def pending_reason(job: Job, now: datetime | None = None) -> str | None:
    """What a job waits for, in words (`needs 2 cpu, 1 free; third in line`); None when it waits no more.

    `job` (saved or not) comes with its environment, engine and host. Reads the use of its environment and its place in
    line. A job that the fleet has waits until remote workers have it.
    """
    if job.status == JobStatus.PREPARING and job.phase == FOR_WORKERS:
        return _told_by_the_fleet(job)
    if job.status != JobStatus.QUEUED:
        return None
    now = now or database_now()
    if job.not_before is not None and job.not_before > now:
        return f"retry after {_time(job.not_before)}"
    if job.environment.engine.host is None:
        return account_reason(job.account_id) or next(place_reasons(job.environment, now))
    reasons = [*place_reasons(job.environment, now), *_caps(job), *_shortages(job)]
    reasons += filter(None, [out_of_reach(job.environment, job.terms["resources"])])
    reasons += filter(None, [in_the_way(job.environment), before_a_benchmark(job.environment)])
    place = place_in_line(job, now)
    if not reasons and is_kept_from(job, now):
        reasons.append("what it needs is kept for a job that waited longer")
    if not reasons and place == 1:
        return "first in line; about to start"
    return "; ".join([*reasons, f"{ordinal(place)} in line"])


def estimated_wait(job: Job, now: datetime | None = None) -> int | None:
    """Seconds until a queued job starts at the latest, as far as the deadlines of others tell; None when unknown."""
    if job.status != JobStatus.QUEUED:
        return None
    now = now or database_now()
    if any(place_reasons(job.environment, now)) or out_of_reach(job.environment, job.terms["resources"]):
        return None
    if account_reason(job.account_id) or is_kept_from(job, now):
        return None
    wait = Estimates([job.environment], now).of_job(job)
    later = (job.not_before - now).total_seconds() if job.not_before is not None else 0
    return None if wait is None else max(wait, math.ceil(later))


def _fleet_reason() -> str:
    """Jobs of the fleet leave the queue as soon as a unit is made of them; workers are waited for afterwards."""
    return "about to become a unit of the fleet" if settings.FLEET_ENABLED else "the fleet is off"


def _told_by_the_fleet(job: Job) -> str:
    """What its unit waited for when that changed last."""
    said = (
        JobEvent.objects.filter(job=job, kind=WAITS).order_by("pk").values_list("message", flat=True).last()
    )
    return said or FOR_WORKERS


def place_reasons(environment: Environment, now: datetime) -> Iterator[str]:
    """What of the environment, its engine and its host keeps every job waiting; no statement is needed."""
    host = environment.engine.host
    if environment.state == EnvironmentState.RETIRED:
        yield f"environment {environment} is retired"
    if host is None:
        yield _fleet_reason()
        return
    if host.declared_gone_at is not None:
        yield f"host {host} is gone: nothing starts there any more"
    yield from engine_reasons(environment.engine, now)


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


def ordinal(number: int) -> str:
    """`first` to `tenth`, then digits: 11th, 21st, 22nd."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _caps(job: Job) -> Iterator[str]:
    """The most jobs at once: of the account, and of the environment or its free tier."""
    if reason := account_reason(job.account_id):
        yield reason
    running, allowed = job_places([job.environment_id])[job.environment_id, job.tier]
    if allowed is not None and running >= allowed:
        yield f"{running} of at most {allowed} {job.tier} jobs run"


def _shortages(job: Job) -> Iterator[str]:
    uses = free_amounts([job.environment])[job.environment_id]
    healthy: dict[int, int] | None = None
    for slug, amount in job.terms["resources"].items():
        if slug not in uses:
            yield f"resource {slug} is no longer offered"
        elif amount > uses[slug].room(job.tier):
            healthy = healthy_devices([job.environment_id]) if healthy is None else healthy
            yield shortage(uses[slug], amount, job.tier, healthy)


def shortage(use: ResourceUse, amount: int, tier: str, healthy: dict[int, int]) -> str:
    """`needs 2 gpu, 1 free`, and why, where it is not this environment's own jobs that have the rest."""
    told = f"needs {amount} {use.slug}, {use.room(tier)} free"
    unhealthy = use.total - healthy.get(use.resource_id, 0) if use.kind == ResourceKind.DEVICE else 0
    if unhealthy > 0:
        told += f", {unhealthy} unhealthy"
    if amount > (largest := most(use, tier, healthy)):
        return f"{told}: there are only {largest}"
    if not use.short_by_host(amount, tier):
        return told
    elsewhere = use.used_elsewhere(healthy.get(use.resource_id, 0))
    return f"{told}: other environments of the host use {elsewhere}" if elsewhere > 0 else told


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
