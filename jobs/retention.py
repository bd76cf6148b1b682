"""What ends by the clock: waits in the queue, and the storage of finished jobs."""

import time
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from compute_site.core.db import database_now, lock, lock_one
from environments.models import EnvironmentState
from jobs.billing.models import Account
from jobs.endings import end_job
from jobs.models import Artifact, Job, JobStatus, LogChunk
from jobs.results import GRACE_SECONDS, remove_unreferenced
from jobs.transitions import record_event


def expire_queued(*, now: datetime | None = None, limit: int = 500) -> int:
    """Queued jobs whose wait is over, or whose environment was retired, so that it never ends → expired.

    Returns how many. Jobs that somebody else holds are left for later.
    """
    now = now or database_now()
    queued = Job.objects.filter(status=JobStatus.QUEUED)
    done = _expire(queued.filter(queue_expires_at__lte=now), "queue_expires_at", limit)
    retired = queued.filter(environment__state=EnvironmentState.RETIRED)
    return done + _expire(retired, "pk", limit, detail="Its environment was retired.")


def _expire(due: QuerySet[Job], first: str, limit: int, *, detail: str = "") -> int:
    keys = list(due.order_by(first).values_list("pk", flat=True)[:limit])
    with transaction.atomic():
        # Still due: in between it may have run and been queued anew.
        jobs = lock(due.filter(pk__in=keys), skip_locked=True)
        # In the order of their keys: two of us at once would wait in a circle for each other's accounts.
        lock(Account.objects.filter(pk__in={job.account_id for job in jobs}).only("pk"))
        return sum(end_job(job, "expired_in_queue", detail=detail) for job in jobs)


def purge_expired(*, now: datetime | None = None, limit: int = 100) -> int:
    """Purge finished jobs whose storage has expired, the longest expired first. Returns how many."""
    now = now or database_now()
    due = Job.objects.filter(storage_purged_at__isnull=True, storage_expires_at__lte=now)
    return sum(purge(job, now=now) for job in due.order_by("storage_expires_at")[:limit])


def purge(job: Job, *, now: datetime | None = None) -> bool:
    """Remove a final job's artifacts, logs, inputs and result; the row stays and says so. False if it was done before.

    Contents that other jobs have too, or that an attempt stored within the grace, stay until their last user goes.
    """
    now = now or database_now()
    with transaction.atomic():
        current = lock_one(Job.objects.filter(pk=job.pk))
        if not current.is_final or current.storage_purged_at is not None:
            return False
        artifacts = Artifact.objects.filter(job=current)
        hashes = list(artifacts.values_list("sha256", flat=True))
        artifacts.delete()
        LogChunk.objects.filter(attempt__job=current).delete()
        spec = {**current.spec, "inputs": {name: "" for name in current.spec.get("inputs", {})}}
        Job.objects.filter(pk=current.pk).update(storage_purged_at=now, spec=spec, result=None)
        record_event(
            current.pk,
            "storage_purged",
            f"{len(hashes)} artifacts, the logs, inputs and result were removed.",
        )
    remove_unreferenced(hashes, before=time.time() - GRACE_SECONDS)
    return True
