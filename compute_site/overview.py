"""What the Overview shows, read in a fixed number of statements, however many rows there are."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Min, Q, Sum
from django.db.models.functions import TruncHour

from compute_site.core.db import database_now
from environments.models import (
    Engine,
    EngineKind,
    EngineState,
    Environment,
    EnvironmentState,
    Host,
)
from environments.use import Place, ResourceUse, core_maps, device_maps, free_amounts
from jobs.billing.models import Book, LedgerEntry
from jobs.models import FINAL, Job, JobStatus
from jobs.obstacles import has_live_worker
from providers.budgets import cost_so_far, hourly_rate
from providers.models import FINAL as POD_FINAL
from providers.models import Pod
from workers.fleet.models import RemoteStatus, RemoteWorker
from workers.fleet.registration import status_now
from workers.models import LIVE, Worker, WorkerStatus

DAY = timedelta(hours=24)
SHOWN_FAILURES = 8
# Ids are ordered by time and indexed, ends are not: a job that ended within a day was submitted within these.
LONGEST_LIFE = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Hour:
    """Jobs that ended in the hour that begins at `start`."""

    start: datetime
    ended: int
    failed: int


@dataclass(frozen=True, slots=True)
class Pods:
    """Rented machines that live now; USD, never less than they can cost."""

    live: int
    per_hour: Decimal
    so_far: Decimal
    alarms: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A host with who has which of its cores and devices."""

    host: Host
    cores: list[Place]
    devices: list[Place]


@dataclass(frozen=True)
class Overview:
    """The site at `now`. `engines`: those that should have a worker, and whether one lives. `alive`: how many workers
    give a sign of life on them. `missed`: workers that fell silent beside one that lives, and nobody has their slots since.
    `spend`: paid by accounts in 24 h, by currency. `hours`: the last 24, oldest first. `remote`: remote workers by status,
    none without a fleet.
    """

    now: datetime
    queued: int
    running: int
    oldest_wait: timedelta | None
    failed: list[tuple[str, int]]
    hours: list[Hour]
    last_failures: list[Job]
    engines: list[tuple[Engine, bool]]
    alive: int
    missed: list[Worker]
    remote: dict[str, int]
    spend: list[tuple[str, Decimal]]
    pods: Pods
    offers: list[tuple[Environment, list[ResourceUse]]]
    machines: list[Machine]

    @property
    def failures(self) -> int:
        """How many failed in 24 h."""
        return sum(count for _, count in self.failed)

    @property
    def silent(self) -> int:
        """Engines without a live worker, and workers that are missed beside one."""
        return sum(not alive for _, alive in self.engines) + len(self.missed)


def read_overview(now: datetime | None = None) -> Overview:
    """Read it all; changes nothing. `now` defaults to the database's clock."""
    now = now or database_now()
    live = Job.objects.exclude(status__in=FINAL).aggregate(
        queued=Count("pk", filter=Q(status=JobStatus.QUEUED)),
        all=Count("pk"),
        oldest=Min("created_at", filter=Q(status=JobStatus.QUEUED)),
    )
    recent = Job.objects.filter(public_id__gte=first_id(now - LONGEST_LIFE), finished_at__gt=now - DAY)
    ended = list(
        recent.annotate(hour=TruncHour("finished_at"))
        .values_list("hour", "status", "end_reason")
        .annotate(n=Count("pk"))
    )
    failed = Counter[str]()
    for _, status, reason, count in ended:
        if status == JobStatus.FAILED:
            failed[reason] += count
    last = recent.filter(status=JobStatus.FAILED).select_related("environment__engine", "account")
    last = last.defer("spec", "terms", "result", "manifest", "usage", "refused_outputs")
    engines = _engines(now)
    there, missed = _workers([engine.pk for engine, alive in engines if alive], now)
    return Overview(
        now=now,
        queued=live["queued"],
        running=live["all"] - live["queued"],
        oldest_wait=max(timedelta(0), now - live["oldest"]) if live["oldest"] else None,
        failed=failed.most_common(),
        hours=_hours(ended, now),
        last_failures=list(last.order_by("-finished_at")[:SHOWN_FAILURES]),
        engines=engines,
        alive=len(there),
        missed=missed,
        remote=_remote(now),
        spend=_spend(now),
        pods=_pods(now),
        offers=_offers(),
        machines=_machines(),
    )


def first_id(moment: datetime) -> UUID:
    """The lowest UUIDv7 of that millisecond: what was made from then on has a higher one."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def _hours(ended: Iterable[tuple[datetime, str, str, int]], now: datetime) -> list[Hour]:
    every, failed = Counter[datetime](), Counter[datetime]()
    for hour, status, _, count in ended:
        every[hour] += count
        failed[hour] += count if status == JobStatus.FAILED else 0
    this = now.replace(minute=0, second=0, microsecond=0)
    starts = [this - timedelta(hours=back) for back in range(23, -1, -1)]
    return [Hour(start, every[start], failed[start]) for start in starts]


def _engines(now: datetime) -> list[tuple[Engine, bool]]:
    rows = Engine.objects.filter(kind=EngineKind.DOCKER, host__declared_gone_at__isnull=True)
    rows = rows.exclude(state=EngineState.DISABLED).select_related("host").order_by("name")
    return [(engine, has_live_worker(engine, now)) for engine in rows]


def _workers(engines: list[int], now: datetime) -> tuple[list[Worker], list[Worker]]:
    """Those that live; and silent ones, newest first, also those that were stored as lost within a day."""
    kept = Q(status__in=LIVE) | Q(status=WorkerStatus.LOST, ended_at__gt=now - DAY)
    rows = list(Worker.objects.filter(kept, engine__in=engines).select_related("slots", "engine"))
    heard = now - timedelta(seconds=settings.WORKER_TTL_SECONDS)
    there = [row for row in rows if row.status in LIVE and row.heartbeat_at >= heard]
    missed: list[Worker] = []
    for row in rows:
        others = [one.slots for one in [*there, *missed] if one.engine_id == row.engine_id]
        if not any(row.slots.members.common(other.members).some for other in others):
            missed.append(row)
    return there, missed


def _remote(now: datetime) -> dict[str, int]:
    if not settings.FLEET_ENABLED:
        return {}
    rows = RemoteWorker.objects.exclude(status=RemoteStatus.RETIRED).only("status", "heartbeat_at")
    return dict(Counter(status_now(worker, now) for worker in rows))


def _spend(now: datetime) -> list[tuple[str, Decimal]]:
    rows = LedgerEntry.objects.filter(
        book=Book.REVENUE,
        transaction__job__public_id__gte=first_id(now - LONGEST_LIFE),
        transaction__created_at__gt=now - DAY,
    )
    sums = rows.order_by().values_list("transaction__currency").annotate(Sum("amount"))
    return sorted(sums)


def _pods(now: datetime) -> Pods:
    rows = list(Pod.objects.exclude(status__in=POD_FINAL))
    return Pods(
        live=len(rows),
        per_hour=sum((hourly_rate(pod) for pod in rows if pod.requested_at), Decimal(0)),
        so_far=sum((cost_so_far(pod, now) for pod in rows), Decimal(0)),
        alarms=sum(pod.alarm_at is not None for pod in rows),
    )


def _offers() -> list[tuple[Environment, list[ResourceUse]]]:
    rows = Environment.objects.filter(benchmark=False).exclude(state=EnvironmentState.RETIRED)
    rows = rows.select_related("engine")
    environments: list[Any] = list(rows.order_by("engine__name", "slug"))
    uses = free_amounts(environments)
    return [(environment, list(uses[environment.pk].values())) for environment in environments]


def _machines() -> list[Machine]:
    hosts = list(Host.objects.filter(declared_gone_at__isnull=True).order_by("name"))
    keys = [host.pk for host in hosts]
    cores, devices = core_maps(keys), device_maps(keys)
    return [Machine(host, cores[host.pk], devices[host.pk]) for host in hosts]
