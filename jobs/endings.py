"""What every final state writes besides its status, whoever reaches it."""

from datetime import timedelta
from typing import Any

from compute_site.core.db import ClockTimestamp
from jobs.billing.holds import close
from jobs.end_reasons import END_REASONS
from jobs.models import Job
from jobs.transitions import move_job


def end_job(
    job: Job,
    reason: str,
    *,
    detail: str = "",
    attempt_id: int | None = None,
    billed_seconds: float | None = None,
    **fields: Any,
) -> bool:
    """Move `job` to the final state of `reason`; what is stored of it expires as its terms say.

    Its hold is captured for a run of `billed_seconds`, or released when that is None. Needs the account's lock.
    True if this caller did it; False when the job's state does not allow it (somebody was first), nothing changed.
    """
    entry = END_REASONS[reason]
    done = move_job(
        job.pk,
        entry.status,
        message=entry.message,
        attempt_id=attempt_id,
        data={"reason": reason},
        end_reason=reason,
        end_detail=detail[:4000],
        storage_expires_at=ClockTimestamp() + timedelta(seconds=job.terms["storage_expiry"]),
        **fields,
    )
    if done:
        close(job, billed_seconds)
    return done
