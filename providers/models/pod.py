"""A pod: one rented machine. Its row is committed before anything is rented."""

from decimal import Decimal

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import PublicModel
from providers.models.account import ProviderAccount


class PodStatus(models.TextChoices):
    INTENT = "intent", "intent"
    REQUESTED = "requested", "requested"
    UNKNOWN = "unknown", "unknown"
    PROVISIONING = "provisioning", "provisioning"
    RUNNING = "running", "running"
    TERMINATING = "terminating", "terminating"
    TERMINATED = "terminated", "terminated"
    FAILED = "failed", "failed"


S = PodStatus
FINAL = frozenset({S.TERMINATED, S.FAILED})
LISTED = frozenset({S.PROVISIONING, S.RUNNING})  # The provider's listing should have it.
UNSURE = frozenset({S.REQUESTED, S.UNKNOWN})  # Something may exist.
TRANSITIONS: dict[str, frozenset[str]] = {
    S.INTENT: frozenset({S.REQUESTED, S.FAILED}),
    S.REQUESTED: frozenset({S.INTENT, S.UNKNOWN, S.PROVISIONING, S.TERMINATING, S.FAILED}),
    S.UNKNOWN: frozenset({S.PROVISIONING, S.TERMINATING}),
    S.PROVISIONING: frozenset({S.RUNNING, S.TERMINATING}),
    S.RUNNING: frozenset({S.TERMINATING}),
    S.TERMINATING: frozenset({S.TERMINATED}),
    S.TERMINATED: frozenset(),
    S.FAILED: frozenset(),
}


class Pod(PublicModel):
    """What was asked, under which caps, and what the provider says of it.

    | from | to | by |
    |---|---|---|
    | intent | requested | the call that rents is about to be made; the ids that exist are noted |
    | intent | failed | ended before any call, or waited too long |
    | requested | provisioning | the answer names the pod |
    | requested | intent | sold out: nothing was created, it is tried again |
    | requested | failed | the provider surely refused: nothing was created |
    | requested | unknown | the answer was lost, or whoever asked died |
    | requested | terminating | created, but the guard behind the create failed |
    | unknown | provisioning | found by its name among the ids that are new since |
    | unknown | terminating | not found within the grace time, or its end was asked |
    | provisioning | running | the provider says so |
    | provisioning, running | terminating | deadline, price, budget, account, operator, or it vanished |
    | terminating | terminated | three good listings in a row lacked it |

    `deadline` runs from the request. Only `providers.transitions` changes `status`. Never deleted.
    """

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="pods")
    name = models.CharField(max_length=32, unique=True, help_text="Its name at the provider.")
    status = models.CharField(max_length=16, choices=PodStatus, default=PodStatus.INTENT)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    request_key = models.CharField(max_length=255, blank=True, help_text="The client's idempotency key.")
    spec = models.JSONField(help_text="What to rent, as checked.")
    gpu_count = models.PositiveSmallIntegerField()
    price_cap = models.DecimalField(max_digits=38, decimal_places=18, help_text="USD per GPU and hour.")
    lifetime_hours = models.PositiveSmallIntegerField()
    committed_cost = models.DecimalField(
        max_digits=38, decimal_places=18, help_text="Price cap, times GPUs, times lifetime."
    )

    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    not_before = models.DateTimeField(null=True, help_text="Not tried before that.")
    tries = models.PositiveIntegerField(default=0)
    idempotency_key = models.CharField(
        max_length=64, blank=True, help_text="Sent to the provider; new per try."
    )
    known_ids = models.JSONField(default=list, help_text="What existed at the provider before the request.")
    requested_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)

    provider_id = models.CharField(max_length=200, blank=True)
    price_per_hour = models.DecimalField(
        max_digits=38, decimal_places=18, null=True, help_text="USD, all of it, as the provider says."
    )
    told = models.CharField(max_length=64, blank=True, help_text="The provider's own word for its state.")
    running_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True, help_text="The last listing that had it.")
    absent_answers = models.PositiveSmallIntegerField(
        default=0, help_text="Good listings in a row without it."
    )

    end_asked_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=40, blank=True)
    terminate_calls = models.PositiveIntegerField(default=0)
    terminate_after = models.DateTimeField(null=True, help_text="The next DELETE, if it is still there.")
    alarm_at = models.DateTimeField(null=True, help_text="Since when it is known that it will not die.")
    finished_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(name="pod_status_known", condition=in_list("status", PodStatus.values)),
            models.CheckConstraint(
                name="pod_finished_exactly_when_final",
                condition=Q(status__in=sorted(FINAL), finished_at__isnull=False)
                | ~Q(status__in=sorted(FINAL)) & Q(finished_at__isnull=True),
            ),
            models.CheckConstraint(
                name="pod_caps_positive",
                condition=Q(price_cap__gt=0, lifetime_hours__gte=1, gpu_count__gte=1)
                & Q(committed_cost=F("price_cap") * F("gpu_count") * F("lifetime_hours")),
            ),
            models.CheckConstraint(
                name="pod_deadline_once_requested",
                condition=Q(status__in=["intent", "failed"]) | Q(deadline__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["account", "request_key"],
                condition=~Q(request_key=""),
                name="pod_request_key_once_per_account",
            ),
            models.UniqueConstraint(
                fields=["account", "provider_id"], condition=~Q(provider_id=""), name="pod_provider_id_once"
            ),
        ]
        indexes = [
            models.Index(fields=["account"], condition=~Q(status__in=sorted(FINAL)), name="pod_live"),
            models.Index(fields=["account", "finished_at"], name="pod_finished"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def allowed_per_hour(self) -> Decimal:
        """USD per hour that all of it may cost."""
        return self.price_cap * self.gpu_count


class PodEvent(models.Model):
    """One thing that happened to a pod."""

    pod = models.ForeignKey(Pod, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=40)
    message = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.kind
