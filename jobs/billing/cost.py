"""What a job has cost, or costs so far: for clients and operators to read."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from jobs.billing.charges import charge
from jobs.billing.models import Hold, HoldStatus
from jobs.models import Job


@dataclass(frozen=True, slots=True)
class Cost:
    """Money of one job. `amount`: paid once it is final, else what it would cost if it ended now."""

    currency: str
    amount: Decimal
    held: Decimal
    final: bool


def cost(job: Job, now: datetime) -> Cost | None:
    """The job's cost, or None when it costs nothing by its terms. Reads `job.hold`: select it with the job."""
    hold: Hold | None = getattr(job, "hold", None)
    if hold is None:
        return None
    if hold.status != HoldStatus.OPEN:
        return Cost(hold.currency, hold.captured, Decimal(0), True)
    ran = (now - job.started_at).total_seconds() if job.started_at is not None else None
    so_far = min(charge(job.terms, ran), hold.amount) if ran is not None else Decimal(0)
    return Cost(hold.currency, so_far, hold.amount, False)
