"""What is told of workers, units and assignments."""

from datetime import datetime
from typing import Any

from django.db.models import Count, Prefetch, QuerySet

from jobs.spec import Spec
from workers import job_file
from workers.fleet.audits import SHOWN_ATTEMPT
from workers.fleet.models import FleetPolicy, RemoteWorker, Replica, Unit
from workers.fleet.registration import status_now


def fleet() -> QuerySet[RemoteWorker]:
    """All remote workers with what `worker` needs."""
    return RemoteWorker.objects.select_related("owner").annotate(fault_count=Count("faults", distinct=True))


def worker(row: RemoteWorker, now: datetime) -> dict[str, Any]:
    """One remote worker."""
    faults = getattr(row, "fault_count", None)
    return {
        "id": row.public_id,
        "owner": row.owner.public_id,
        "key": row.key,
        "provider": row.provider,
        "status": status_now(row, now),
        "last_seen": row.heartbeat_at,
        "capabilities": row.capabilities,
        "faults": row.faults.count() if faults is None else faults,
    }


def units() -> QuerySet[Unit]:
    """All units with what `unit` needs, the newest first."""
    rows = Unit.objects.select_related("attempt__job", "audit__job")
    replicas = Replica.objects.select_related("worker", "owner").defer("progress", "manifest", "result")
    return rows.prefetch_related(Prefetch("replicas", replicas), "faults__worker").order_by("-pk")


def unit(row: Unit) -> dict[str, Any]:
    """One unit with its replicas, and its audit if it has one."""
    audit = getattr(row, "audit", None)
    return {
        "id": row.public_id,
        "job": row.attempt.job.public_id,
        "status": row.status,
        "degraded": row.degraded,
        "waits_for": row.waits_for,
        "replicas": [_replica(each) for each in row.replicas.all()],
        "audit": audit
        and {
            "id": audit.public_id,
            "runs_on": str(audit.job.environment),
            "outcome": audit.status,
            "manifest_sha256": audit.manifest_sha256,
        },
        "faults": [fault.worker.public_id for fault in row.faults.all()],
    }


def _replica(row: Replica) -> dict[str, Any]:
    return {
        "worker": row.worker and row.worker.public_id,
        "owner": row.owner and row.owner.public_id,
        "status": row.status,
        "manifest_sha256": row.manifest_sha256,
        "has_proof": row.proof is not None,
        "lapses": [{"worker": lapse["worker"], "why": lapse["why"]} for lapse in row.lapses],
        "failure": row.failure,
    }


def assignment(row: Replica) -> dict[str, Any]:
    """What a worker needs to run a replica; nothing of whose the job is."""
    job = row.unit.attempt.job
    spec = Spec.from_json(job.spec)
    lease = FleetPolicy.objects.values_list("lease", flat=True).get(environment=row.unit.environment_id)
    return {
        "id": row.public_id,
        "token": row.token,
        "unit": row.unit.public_id,
        "deadline": row.deadline,
        "lease": lease,
        "work": {
            "image": spec.image,
            "entrypoint": spec.entrypoint,
            "command": [*spec.command, *spec.args],
            "env": spec.env,
            "inputs": spec.inputs,
            "outputs": spec.outputs,
            "amounts": job.amounts,
            "job_json": job_file.document(job, SHOWN_ATTEMPT, spec, shown_as=row.unit.public_id).decode(),
            "max_duration": job.max_duration,
        },
    }
