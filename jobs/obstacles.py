"""What stands in the way of jobs now, in words: read from the rows for any number of environments at once."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings

from environments.alone import in_the_way
from environments.models import Engine, EngineState, Environment, EnvironmentState, ResourceKind
from environments.slots import out_of_reach, read_reach
from environments.use import ResourceUse, free_amounts, job_places
from jobs.caps import account_reason
from jobs.measuring import kept_for_a_benchmark
from jobs.models import Job
from jobs.networks import network_reason, network_reasons
from jobs.overdue import Kept, healthy_devices, may_ever_fit, most

KEPT = "what it needs is kept for a job that waited longer"


class Obstacles:
    """Of these environments (with their engines and hosts) for jobs of one account, as of `now`.

    Eight statements for all of them together, and at most four more where jobs are overdue.
    """

    def __init__(self, environments: Sequence[Environment], account_id: int, now: datetime) -> None:
        keys = [environment.pk for environment in environments]
        self._now = now
        self._account = account_reason(account_id)
        self._places = job_places(keys)
        self._uses = free_amounts(environments)
        self._healthy = healthy_devices(keys)
        self._reach = read_reach(keys)
        self._alone = in_the_way(keys)
        self._measured = kept_for_a_benchmark(environments)
        alive = [one.engine for one in environments if not any(place_reasons(one, now))]
        self._kept = Kept(alive, now)

    def of(self, job: Job) -> Iterator[str]:
        """All that is in the way of the job (saved or not) but those before it, and what is kept for others."""
        key = job.environment_id
        yield from start_reasons(job, self._now)
        yield from self._caps(job)
        yield from self._shortages(job)
        if unreachable := self._unreachable(job):
            yield unreachable
        if key in self._alone:
            yield self._alone[key]
        if key in self._measured:
            yield "its host is kept for a benchmark that waited longer, and starts nothing else before"

    def may_end(self, job: Job) -> bool:
        """Whether waiting may help at all: something starts there, and the job's amounts can be had."""
        uses = self._uses[job.environment_id]
        fits = may_ever_fit(job.terms["resources"], job.tier, uses, self._healthy)
        return fits and not any(start_reasons(job, self._now)) and not self._unreachable(job)

    def is_kept_from(self, job: Job) -> bool:
        """Whether the job would take what is kept for an overdue one of its host."""
        return self._kept.would_miss(job, self._uses[job.environment_id])

    def _unreachable(self, job: Job) -> str | None:
        return out_of_reach(self._reach[job.environment_id], job.terms["resources"])

    def _caps(self, job: Job) -> Iterator[str]:
        """The most jobs at once: of the account, and of the environment or its free tier."""
        if self._account:
            yield self._account
        running, allowed = self._places[job.environment_id, job.tier]
        if allowed is not None and running >= allowed:
            yield f"{running} of at most {allowed} {job.tier} jobs run"

    def _shortages(self, job: Job) -> Iterator[str]:
        uses = self._uses[job.environment_id]
        for slug, amount in job.terms["resources"].items():
            if slug not in uses:
                yield f"resource {slug} is no longer offered"
            elif amount > uses[slug].room(job.tier):
                yield _shortage(uses[slug], amount, job.tier, self._healthy)


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


def start_reasons(job: Job, now: datetime) -> Iterator[str]:
    """What keeps the job waiting whatever is free there; no statement is needed."""
    yield from place_reasons(job.environment, now)
    yield from network_reasons(job)


def offer_reasons(environment: Environment, now: datetime) -> Iterator[str]:
    """What keeps every job waiting that the environment would admit now; no statement is needed."""
    yield from place_reasons(environment, now)
    if environment.enable_network and (reason := network_reason(environment.engine)):
        yield reason


def engine_reasons(engine: Engine, now: datetime) -> Iterator[str]:
    """What of the engine itself keeps its jobs waiting; no statement is needed."""
    if engine.state != EngineState.ACTIVE:
        yield f"engine {engine.name} is {engine.state}: it starts nothing new"
    if not has_live_worker(engine, now):
        yield f"no live worker for engine {engine.name}"
    elif engine.unreachable_since is not None:
        yield f"engine {engine.name} does not answer since {time_text(engine.unreachable_since)}"


def has_live_worker(engine: Engine, now: datetime) -> bool:
    """Whether a worker of the engine gave a sign of life within the time after which it counts as lost."""
    alive_after = now - timedelta(seconds=settings.WORKER_TTL_SECONDS)
    return engine.worker_seen_at is not None and engine.worker_seen_at >= alive_after


def time_text(moment: datetime) -> str:
    """A moment as clients read it, in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _fleet_reason() -> str:
    """Jobs of the fleet leave the queue as soon as a unit is made of them; workers are waited for afterwards."""
    return "about to become a unit of the fleet" if settings.FLEET_ENABLED else "the fleet is off"


def _shortage(use: ResourceUse, amount: int, tier: str, healthy: Mapping[int, int]) -> str:
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
