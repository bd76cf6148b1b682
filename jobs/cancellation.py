"""Cancelling: a queued job ends at once, a running one is asked to stop and ends cancelled, whatever else happens."""

from typing import Any

from django.db import transaction

from compute_site.core.db import ClockTimestamp, lock_one
from jobs.billing.models import Account
from jobs.dispatch import knock_on_commit
from jobs.endings import end_job
from jobs.models import Job, JobStatus
from jobs.transitions import record_event


def cancel(job: Job, by: str, *, operator: bool = False) -> Job:
    """Cancel `job` on behalf of `by` (a name); returns it as it stands now. Any state, as often as one likes.

    Queued → cancelled. Preparing, running, collecting: the request is recorded, the first one wins, and the engine's
    worker is knocked; settlement makes it cancelled. A final job stays as it is. An `operator`'s cancel is not billed, nor is
    that of a queued job.
    """
    with transaction.atomic():
        current = lock_one(Job.objects.filter(pk=job.pk))
        if not current.is_final and current.cancel_requested_at is None:
            _request(current, by, "cancelled_by_operator" if operator else "cancelled")
    return Job.objects.select_related("account", "environment__engine", "hold").get(pk=job.pk)


def _request(job: Job, by: str, reason: str) -> None:
    fields: dict[str, Any] = {
        "cancel_requested_at": ClockTimestamp(),
        "cancel_requested_by": by[:150],
        "cancel_reason": reason,
    }
    if job.status == JobStatus.QUEUED:
        lock_one(Account.objects.filter(pk=job.account_id).only("pk"))
        end_job(job, reason, **fields)
        return
    Job.objects.filter(pk=job.pk).update(**fields)
    record_event(job.pk, "cancel_requested", f"by {by[:150]}")
    knock_on_commit(job.environment.engine)
