"""What a remote worker does with what it was given: pull it, say that it goes on, and lose it."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, lock
from compute_site.core.errors import StaleToken
from jobs.models import AttemptStatus, Job, JobStatus
from jobs.transitions import move_attempt, move_job
from workers.fleet.models import FleetPolicy, RemoteWorker, Replica, ReplicaStatus, Unit
from workers.fleet.models.unit import HELD, UNIT_OPEN
from workers.fleet.transitions import move_replica

PATH = (AttemptStatus.CREATED, AttemptStatus.STARTING, AttemptStatus.RUNNING)
CAUSE_CAP = 500  # characters of a cause as it is told; the whole is kept


def pull(worker: RemoteWorker, limit: int) -> list[Replica]:
    """Hand over up to `limit` replicas that were assigned to this worker: assigned → running, each once.

    Rows that another request of the same worker has locked are left to it. The first one of a unit makes its job run.
    """
    with transaction.atomic():
        rows = Replica.objects.filter(
            worker=worker,
            status=ReplicaStatus.ASSIGNED,
            unit__status__in=UNIT_OPEN,
            deadline__gt=ClockTimestamp(),
            lease_until__gt=ClockTimestamp(),
        )
        keys = list(rows.order_by("pk").values_list("pk", flat=True)[: max(0, limit)])
        locked = lock(rows.filter(pk__in=keys), skip_locked=True)
        pulled = [replica for replica in locked if move_replica(replica, ReplicaStatus.RUNNING)]
        for replica in pulled:
            _renew(replica)
            _run_job(replica.unit)
    return pulled


def _run_job(unit: Unit) -> None:
    attempt = unit.attempt
    if move_job(
        attempt.job_id, JobStatus.RUNNING, attempt_id=attempt.pk, phase="", started_at=ClockTimestamp()
    ):
        for status in PATH:
            move_attempt(attempt, status)


def progress(worker: RemoteWorker, public_id: UUID, token: UUID, said: Mapping[str, Any]) -> Replica:
    """Renew the lease. Raises ObjectDoesNotExist, or StaleToken when the replica is not this worker's any more."""
    with transaction.atomic():
        replica = held(worker, public_id, token)
        if replica.status != ReplicaStatus.RUNNING:
            raise StaleToken(f"this replica is {replica.status}")
        Replica.objects.filter(pk=replica.pk).update(progress=dict(said))
        _renew(replica)
    return replica


def _renew(replica: Replica) -> None:
    lease = FleetPolicy.objects.values_list("lease", flat=True).get(environment=replica.unit.environment_id)
    Replica.objects.filter(pk=replica.pk).update(lease_until=ClockTimestamp() + timedelta(seconds=lease))


def give_back(replica: Replica, why: str, policy: FleetPolicy, *, is_final: bool = False) -> None:
    """assigned, running → waiting, free for another worker; failed, with every cause, when no try is left.

    Under the replica's or its unit's lock. Each cause is kept with the worker and its token, which is void from now on.
    """
    holder = str(replica.worker.public_id) if replica.worker else ""
    lapses = [*replica.lapses, {"worker": holder, "token": str(replica.token), "why": why}]
    if is_final or replica.tries >= policy.max_attempts:
        move_replica(replica, ReplicaStatus.FAILED, lapses=lapses, failure=told(lapses))
        return
    nobody = {"worker": None, "owner": None, "deadline": None, "lease_until": None}
    move_replica(replica, ReplicaStatus.WAITING, lapses=lapses, token=uuid4(), progress={}, **nobody)


def told(lapses: Iterable[Mapping[str, str]]) -> str:
    """Why a replica has no result: the cause of each try, with the last eight characters of the worker's id."""
    return "; ".join(f"{lapse['worker'][-8:]}: {lapse['why'][:CAUSE_CAP]}" for lapse in lapses)


def held(worker: RemoteWorker, public_id: UUID, token: UUID) -> Replica:
    """The replica, locked, when its assignment is this worker's with this token, whatever its status.

    Raises ObjectDoesNotExist or StaleToken: a late word of an older assignment changes nothing. A job whose cancel
    was asked is nobody's any more.
    """
    rows = lock(Replica.objects.filter(public_id=public_id))
    if not rows:
        raise ObjectDoesNotExist("There is no such assignment.")
    replica = rows[0]
    if replica.worker_id != worker.pk or replica.token != token:
        raise StaleToken("this assignment is not yours any more")
    late = Replica.objects.filter(Q(deadline__lte=ClockTimestamp()), pk=replica.pk, status__in=HELD).exists()
    job = Job.objects.filter(pk=replica.unit.attempt.job_id, cancel_requested_at__isnull=False)
    if late or (replica.status in HELD and job.exists()):
        raise StaleToken("its deadline is over" if late else "its job was cancelled")
    return replica
