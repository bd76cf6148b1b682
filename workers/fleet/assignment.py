"""From a queued job to replicas with workers: units are made, workers chosen, what lapsed is given to others."""

from datetime import datetime, timedelta
from uuid import uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Max, Q

from compute_site.core.db import ClockTimestamp, constraint_name, lock, lock_key
from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import new_public_id
from environments.models import EngineKind, EngineState, Environment, EnvironmentState
from jobs.caps import check_account, full_accounts
from jobs.models import Attempt, Job, JobStatus
from jobs.pending import FOR_WORKERS, WAITS
from jobs.transitions import move_job, record_event
from workers.fleet.leases import give_back
from workers.fleet.models import FleetPolicy, RemoteWorker, Replica, ReplicaStatus, Unit, UnitStatus
from workers.fleet.models.unit import HELD, REPLICA_OPEN
from workers.fleet.registration import active_workers
from workers.fleet.transitions import move_replica, move_unit

BATCH = 64
WITH_WORKERS = "given to workers"  # the phase until one of them has pulled it
MARGIN_SECONDS = 300  # beside the job's own duration: to be pulled, to fetch the image, to report
NO_USER = 0  # an attempt of the fleet holds no numeric user of ours


def make_units() -> int:
    """Make a unit of each queued job of an environment that the fleet serves, as far as its account may run more;
    returns how many.

    Before: queued. After: preparing, its attempt on the fleet's engine, a unit with the policy's number of replicas.
    """
    queued = Job.objects.filter(
        status=JobStatus.QUEUED,
        cancel_requested_at=None,
        environment__engine__kind=EngineKind.FLEET,
        environment__engine__state=EngineState.ACTIVE,
        environment__fleet_policy__isnull=False,
    ).exclude(environment__state=EnvironmentState.RETIRED)
    queued = queued.filter(Q(not_before=None) | Q(not_before__lte=ClockTimestamp()))
    queued = queued.exclude(account__in=full_accounts())  # they wait, and hide nobody
    rows = queued.order_by("pk").values_list("pk", "environment")[:BATCH]
    return sum(_make_unit(pk, environment) for pk, environment in list(rows))


def _make_unit(job_id: int, environment_id: int) -> bool:
    """False when the job is no longer queued, somebody else has it, its account is at its cap by now, its environment
    was retired, or its engine starts nothing new."""
    try:
        return _made(job_id, environment_id)
    except CapacityUnavailable:
        return False


def _made(job_id: int, environment_id: int) -> bool:
    with transaction.atomic():
        # Nobody retires it or disables its engine meanwhile: whoever does counts attempts under this lock.
        environment = lock_key(Environment, environment_id)
        if environment.state == EnvironmentState.RETIRED or environment.engine.state != EngineState.ACTIVE:
            return False
        rows = lock(
            Job.objects.filter(pk=job_id, status=JobStatus.QUEUED, cancel_requested_at=None), skip_locked=True
        )
        if not rows:
            return False
        job = rows[0]
        check_account(job.account_id)
        policy = FleetPolicy.objects.get(environment=job.environment_id)
        holder = new_public_id()
        attempt = Attempt.objects.create(
            public_id=holder,
            job=job,
            number=job.attempts_made + 1,
            engine_id=job.environment.engine_id,
            uid=NO_USER,
            container_name=f"fleet-{settings.SITE_ID}-{holder.hex}",
        )
        unit = Unit.objects.create(attempt=attempt, environment_id=job.environment_id, wanted=policy.replicas)
        Replica.objects.bulk_create(
            Replica(unit=unit, number=number) for number in range(1, policy.replicas + 1)
        )
        move_job(
            job.pk,
            JobStatus.PREPARING,
            attempt_id=attempt.pk,
            data={"unit": str(unit.public_id), "replicas": policy.replicas},
            attempts_made=F("attempts_made") + 1,
            not_before=None,
            phase=FOR_WORKERS,
        )
    return True


def assign(unit: Unit, policy: FleetPolicy, now: datetime) -> None:
    """Under the unit's lock: take back what lapsed, give what waits to workers, and say what is still waited for."""
    replicas = list(unit.replicas.select_related("worker").defer("progress").order_by("number"))
    for replica in replicas:
        if replica.status in HELD and (why := _lapsed(replica, now)):
            give_back(replica, why, policy)
    waiting = list(unit.replicas.filter(status=ReplicaStatus.WAITING).order_by("number"))
    given = [replica for replica in waiting if _give(unit, replica, policy, now)]
    left = len(waiting) - len(given)
    if left and _may_degrade(unit, policy, now):
        left = _degrade(unit)
    _say(unit, left)
    if given:
        move_unit(unit.pk, UnitStatus.ASSIGNED)


def _lapsed(replica: Replica, now: datetime) -> str:
    """Why a worker has lost its replica, or an empty text."""
    assert replica.worker is not None
    assert replica.deadline is not None
    assert replica.lease_until is not None
    if replica.deadline <= now:
        return "deadline"
    if replica.lease_until <= now:
        return "lease"
    if not active_workers(now).filter(pk=replica.worker.pk).exists():
        return "worker stale or retired"
    return ""


def _give(unit: Unit, replica: Replica, policy: FleetPolicy, now: datetime) -> bool:
    """waiting → assigned, to the worker whose turn it is among those that may; False when there is none."""
    job = unit.attempt.job
    for worker in _candidates(unit, now):
        rows = lock(RemoteWorker.objects.filter(pk=worker.pk), skip_locked=True)
        if not rows or Replica.objects.filter(worker=worker, status__in=HELD).count() >= rows[0].slots:
            continue
        duration = timedelta(seconds=job.max_duration + MARGIN_SECONDS)
        try:
            with transaction.atomic():
                return move_replica(
                    replica,
                    ReplicaStatus.ASSIGNED,
                    token=uuid4(),
                    worker=worker,
                    owner=worker.owner,
                    tries=replica.tries + 1,
                    assigned_at=now,
                    deadline=now + duration,
                    lease_until=now + timedelta(seconds=policy.lease),
                )
        except IntegrityError as error:
            if constraint_name(error) != "fleet_replica_one_per_owner":
                raise
    return False


def _candidates(unit: Unit, now: datetime) -> list[RemoteWorker]:
    """Active workers that fit and are free, of owners that neither own the job nor have part in the unit.

    The longest idle first. Who has lost or failed a replica of the unit gets one again only when there is nobody else,
    free or not.
    """
    job = unit.attempt.job
    taken = unit.replicas.exclude(owner=None).values("owner")
    rows = active_workers(now).exclude(owner__account=job.account_id).exclude(owner__in=taken)
    rows = rows.select_related("owner").annotate(
        held=Count("replicas", filter=Q(replicas__status__in=HELD)), last=Max("replicas__assigned_at")
    )
    lost = {lapse["worker"] for each in unit.replicas.only("lapses") for lapse in each.lapses}
    able = [worker for worker in rows if _fits(worker, job.amounts)]
    others = [worker for worker in able if str(worker.public_id) not in lost]
    return sorted((worker for worker in others or able if worker.held < worker.slots), key=_idle_since)


def _idle_since(worker: RemoteWorker) -> tuple[float, int]:
    last: datetime | None = worker.last  # type: ignore[attr-defined]  # annotated by _candidates
    return (last.timestamp() if last is not None else 0.0), worker.pk


def _fits(worker: RemoteWorker, amounts: dict[str, int]) -> bool:
    return all(
        amount <= worker.capabilities.get(kind, 0) for kind, amount in amounts.items() if kind != "counter"
    )


def _may_degrade(unit: Unit, policy: FleetPolicy, now: datetime) -> bool:
    """The policy's wait is over, and somebody at least has part in the unit."""
    waited = unit.created_at + timedelta(seconds=policy.degrade_after) <= now
    return waited and unit.replicas.filter(owner__isnull=False).exists()


def _degrade(unit: Unit) -> int:
    """Go on with those that there are: the waiting replicas are dropped, with a warning on unit and job."""
    for replica in unit.replicas.filter(status=ReplicaStatus.WAITING):
        move_replica(replica, ReplicaStatus.DROPPED)
    Unit.objects.filter(pk=unit.pk).update(degraded=True)
    job_id, attempt_id = unit.attempt.job_id, unit.attempt_id
    record_event(job_id, "degraded", "Fewer owners than wanted have a worker for it.", attempt_id=attempt_id)
    return 0


def _say(unit: Unit, left: int) -> None:
    """Why replicas still wait, where it has changed: on the unit, and for the client on its job."""
    text = (
        f"{left} of {unit.wanted} replicas wait for an active worker of another owner that fits"
        if left
        else ""
    )
    if not Unit.objects.filter(pk=unit.pk).exclude(waits_for=text).update(waits_for=text):
        return
    job_id = unit.attempt.job_id
    phase = FOR_WORKERS if text else WITH_WORKERS
    Job.objects.filter(pk=job_id, status=JobStatus.PREPARING).update(phase=phase)
    if text:
        record_event(job_id, WAITS, text, attempt_id=unit.attempt_id)


def drop_open(unit: Unit) -> None:
    """The unit ends: whoever still works on it learns it at the next progress."""
    for replica in unit.replicas.filter(status__in=REPLICA_OPEN):
        move_replica(replica, ReplicaStatus.DROPPED)
