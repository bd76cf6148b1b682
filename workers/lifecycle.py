"""The life of a worker row: register, heartbeat, drain, stop, lost. Judged by the database's clock alone."""

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from compute_site.core.db import ClockTimestamp, lock
from compute_site.core.transitions import move
from environments.models import Engine
from jobs.models import Attempt
from workers.models import LIVE, TRANSITIONS, Worker, WorkerStatus

log = logging.getLogger(__name__)

_at_work: Counter[UUID] = Counter()  # leases of the steps that threads of this process are at
_at_work_lock = threading.Lock()


def register(engine: Engine, *, version: str = "") -> Worker:
    """Write a new online worker row for this process; whoever was live on the engine is superseded, its leases void."""
    with transaction.atomic():
        old = lock(Worker.objects.filter(engine=engine, status__in=sorted(LIVE)))
        for row in old:
            move(Worker, row.pk, WorkerStatus.LOST, TRANSITIONS, ended_at=ClockTimestamp())
        worker = Worker.objects.create(
            engine=engine, hostname=socket.gethostname(), pid=os.getpid(), version=version
        )
        Worker.objects.filter(pk__in=[row.pk for row in old]).update(superseded_by=worker)
    for row in old:
        log.warning("worker %s on %s superseded by %s", row.short_id, engine.name, worker.short_id)
        void_leases(row.pk)
    return worker


@contextmanager
def at_work(lease: UUID) -> Iterator[None]:
    """While a thread is at the step of this lease, the heartbeat renews it; a step whose thread failed lapses."""
    with _at_work_lock:
        _at_work[lease] += 1
    try:
        yield
    finally:
        with _at_work_lock:
            _at_work[lease] -= 1
            if not _at_work[lease]:
                del _at_work[lease]


def heartbeat(worker: Worker) -> bool:
    """Say that the worker lives and renew the leases of the steps that this process is at. False: the row is no longer
    live; stop working."""
    alive = Worker.objects.filter(pk=worker.pk, status__in=sorted(LIVE)).update(heartbeat_at=ClockTimestamp())
    if not alive:
        return False
    if leases := list(_at_work):
        Attempt.objects.filter(
            Q(step_deadline__isnull=True) | Q(step_deadline__gt=ClockTimestamp()),
            lease_worker=worker.pk,
            lease__in=leases,
        ).update(lease_until=ClockTimestamp() + lease_time())
    Engine.objects.filter(pk=worker.engine_id).update(worker_seen_at=ClockTimestamp())
    return True


def drain(worker: Worker) -> bool:
    """Take nothing new from now on; running containers go on."""
    return move(Worker, worker.pk, WorkerStatus.DRAINING, TRANSITIONS)


def stop(worker: Worker) -> bool:
    """The process ends in good order: its row is stopped, and steps it still holds are free for the next worker."""
    done = move(Worker, worker.pk, WorkerStatus.STOPPED, TRANSITIONS, ended_at=ClockTimestamp())
    Attempt.objects.filter(lease_worker=worker.pk).update(lease=None, lease_worker=None, lease_until=None)
    return done


def mark_lost() -> list[int]:
    """Store as lost every live worker whose heartbeat is older than the TTL; returns their ids. Safe to repeat."""
    limit = ClockTimestamp() - timedelta(seconds=settings.WORKER_TTL_SECONDS)
    lost = []
    for worker in Worker.objects.filter(status__in=sorted(LIVE), heartbeat_at__lt=limit):
        if move(
            Worker,
            worker.pk,
            WorkerStatus.LOST,
            TRANSITIONS,
            guard=Q(heartbeat_at__lt=limit),
            ended_at=ClockTimestamp(),
        ):
            log.warning(
                "worker %s on %s lost: silent for %d s",
                worker.short_id,
                worker.engine_id,
                settings.WORKER_TTL_SECONDS,
            )
            void_leases(worker.pk)
            lost.append(worker.pk)
    return lost


def void_leases(worker_id: int) -> int:
    """Free the steps that a dead worker held. Each counts as one lost try of its step: a poison job must not go on for ever."""
    return Attempt.objects.filter(lease_worker=worker_id).update(
        lease=None, lease_worker=None, lease_until=None, step_tries=F("step_tries") + 1
    )


def lease_time() -> timedelta:
    """How long a lease lasts without a heartbeat."""
    return timedelta(seconds=settings.STEP_LEASE_SECONDS)


def new_lease(worker: Worker, seconds: float) -> dict[str, object]:
    """The fields of a fresh lease for `worker` on a step that may take `seconds` in all."""
    return {
        "lease": uuid4(),
        "lease_worker": worker.pk,
        "lease_until": ClockTimestamp() + lease_time(),
        "step_deadline": ClockTimestamp() + timedelta(seconds=seconds),
    }
