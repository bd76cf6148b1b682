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
from django.db.models import BooleanField, ExpressionWrapper, F, Q
from django.db.models.expressions import CombinedExpression

from compute_site.core.db import ClockTimestamp, wait_in_turn
from compute_site.core.errors import SiteError
from compute_site.core.transitions import move
from environments.models import Engine, Slots, SlotSet
from environments.models.slots import ALL
from environments.slots import device_names, first_of, release_slots
from jobs.models import Attempt
from workers.models import LIVE, TRANSITIONS, Worker, WorkerStatus

log = logging.getLogger(__name__)

_at_work: Counter[UUID] = Counter()  # leases of the steps that threads of this process are at
_at_work_lock = threading.Lock()


class SlotsTaken(SiteError):
    """Another live worker of the engine has some of the slots; the message names one of them, and the worker."""


def register(engine: Engine, slots: SlotSet = ALL, *, version: str = "") -> Worker:
    """Write a new online worker row for this process. Whoever was live on the same slots is superseded, its leases void.

    Raises SlotsTaken when a live worker has some of the slots and not the same; then nothing was written.
    """
    worker = Worker(engine=engine, hostname=socket.gethostname(), pid=os.getpid(), version=version)
    with transaction.atomic():
        wait_in_turn(f"slots of engine {engine.pk}")
        old = superseded(engine, slots)
        for row in old:
            _end(row, WorkerStatus.LOST)
        worker.slots = Slots.objects.create(
            engine=engine,
            holder=f"{worker.short_id} ({worker.hostname}:{worker.pid})",
            cores=slots.cores,
            devices=slots.devices,
        )
        worker.save()
        Worker.objects.filter(pk__in=[row.pk for row in old]).update(superseded_by=worker)
    for row in old:
        log.warning("worker %s on %s superseded by %s", row.short_id, engine.name, worker.short_id)
        void_leases(row.pk)
    return worker


def superseded(engine: Engine, slots: SlotSet) -> list[Worker]:
    """The live workers that one with these slots would take the place of: of the same slots, or silent for the TTL.

    Raises SlotsTaken for a worker that is neither and has some of the slots.
    """
    found: list[Worker] = []
    silent = Q(heartbeat_at__lt=_alive_after())
    rows = Worker.objects.filter(engine=engine, status__in=sorted(LIVE)).select_related("slots")
    for row in rows.annotate(silent=ExpressionWrapper(silent, output_field=BooleanField())):
        common = slots.common(row.slots.members)
        if not common.some:
            continue
        if slots != row.slots.members and not row.silent:
            raise SlotsTaken(
                f"{first_of(common)} of engine {engine.name} is a slot of worker {row.slots.holder}, which has cores"
                f" {row.slots.members.core_text} and devices {device_names(row.slots.devices)}: two workers of one engine"
                f" share no slot. Choose others by --cores and --devices, or stop that worker; one that was killed"
                f" counts as lost after {settings.WORKER_TTL_SECONDS} s."
            )
        found.append(row)
    return found


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
    done = _end(worker, WorkerStatus.STOPPED)
    Attempt.objects.filter(lease_worker=worker.pk).update(lease=None, lease_worker=None, lease_until=None)
    return done


def mark_lost() -> list[int]:
    """Store as lost every live worker whose heartbeat is older than the TTL; returns their ids. Safe to repeat."""
    silent = Q(heartbeat_at__lt=_alive_after())
    lost = []
    for worker in Worker.objects.filter(silent, status__in=sorted(LIVE)):
        if _end(worker, WorkerStatus.LOST, guard=silent):
            log.warning(
                "worker %s on %s lost: silent for %d s",
                worker.short_id,
                worker.engine_id,
                settings.WORKER_TTL_SECONDS,
            )
            void_leases(worker.pk)
            lost.append(worker.pk)
    return lost


def _alive_after() -> CombinedExpression:
    return ClockTimestamp() - timedelta(seconds=settings.WORKER_TTL_SECONDS)


def _end(worker: Worker, status: WorkerStatus, guard: Q | None = None) -> bool:
    """The worker's row ends, and its slots are released with it. Returns whether this caller did it."""
    with transaction.atomic():
        done = move(Worker, worker.pk, status, TRANSITIONS, guard=guard, ended_at=ClockTimestamp())
        if done:
            release_slots(worker.slots_id)
    return done


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
