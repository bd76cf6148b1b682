"""Money set aside for a job."""

from django.db import models
from django.db.models import F, Q

from compute_site.core.db import ClockTimestamp, in_list
from jobs.billing.charges import money_text
from jobs.billing.models.account import Account
from jobs.billing.models.ledger import money_field


class HoldStatus(models.TextChoices):
    OPEN = "open", "open"
    CAPTURED = "captured", "captured"
    RELEASED = "released", "released"


S = HoldStatus
TRANSITIONS: dict[str, frozenset[str]] = {
    S.OPEN: frozenset({S.CAPTURED, S.RELEASED}),
    S.CAPTURED: frozenset(),
    S.RELEASED: frozenset(),
}


class Hold(models.Model):
    """What one job may cost at most, set aside at its admission and kept while it is tried again.

    | from | to | by |
    |---|---|---|
    | open | captured | the job ended and is billed: `captured` is paid, the rest is free again |
    | open | released | the job ended and costs nothing |

    A job that costs nothing by its terms has none. Only `jobs.billing.holds` changes it.
    """

    job = models.OneToOneField("jobs.Job", on_delete=models.PROTECT, related_name="hold")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="holds")
    currency = models.CharField(max_length=128)
    amount = money_field(help_text="Set aside at admission.")
    captured = money_field(default=0, help_text="What was paid of it in the end.")
    status = models.CharField(max_length=16, choices=HoldStatus, default=HoldStatus.OPEN)
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(name="hold_status_known", condition=in_list("status", HoldStatus.values)),
            models.CheckConstraint(name="hold_amount_positive", condition=Q(amount__gt=0) & ~Q(currency="")),
            models.CheckConstraint(
                name="hold_captured_exactly_when_paid",
                condition=Q(status=S.CAPTURED, captured__gt=0, captured__lte=F("amount"))
                | ~Q(status=S.CAPTURED) & Q(captured=0),
            ),
            models.CheckConstraint(
                name="hold_ended_exactly_when_final",
                condition=Q(status=S.OPEN, ended_at__isnull=True)
                | ~Q(status=S.OPEN) & Q(ended_at__isnull=False),
            ),
        ]
        indexes = [models.Index(fields=["account"], condition=Q(status=S.OPEN), name="hold_open")]

    def __str__(self) -> str:
        return f"{money_text(self.amount)} {self.currency}"
