"""A job: the row is the queue."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import PublicModel
from environments.models import Environment, ResourceKind, Tier
from jobs.billing.models import Account
from jobs.end_reasons import END_REASONS


class JobStatus(models.TextChoices):
    QUEUED = "queued", "queued"
    PREPARING = "preparing", "preparing"
    RUNNING = "running", "running"
    COLLECTING = "collecting", "collecting"
    SUCCEEDED = "succeeded", "succeeded"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"
    EXPIRED = "expired", "expired"


S = JobStatus
FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.EXPIRED})
ACTIVE = frozenset({S.PREPARING, S.RUNNING, S.COLLECTING})
TRANSITIONS: dict[str, frozenset[str]] = {
    S.QUEUED: frozenset({S.PREPARING, S.CANCELLED, S.EXPIRED}),
    S.PREPARING: frozenset({S.RUNNING, S.COLLECTING, S.QUEUED, S.FAILED, S.CANCELLED}),
    S.RUNNING: frozenset({S.COLLECTING, S.QUEUED, S.FAILED, S.CANCELLED}),
    S.COLLECTING: frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.QUEUED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
    S.EXPIRED: frozenset(),
}


class Job(PublicModel):
    """What a client asked, the terms under which it was admitted, and what came of it.

    | from | to | by |
    |---|---|---|
    | queued | preparing | a worker took it (reservation made in the same transaction) |
    | queued | cancelled, expired | cancel; its queue wait ran out |
    | preparing | running | its container runs |
    | preparing, running | collecting | its container has exited |
    | preparing, running, collecting | queued | the attempt failed retryably; `not_before` set |
    | preparing, running, collecting | failed, cancelled | settled |
    | collecting | succeeded | settled |

    `phase` names the substate while preparing: workspace, or pulling and scanning while its image is. Only
    `jobs.transitions` changes `status`. The end reason is written once and never overwritten.
    """

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="jobs")
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="jobs")
    tier = models.CharField(max_length=8, choices=Tier)
    status = models.CharField(max_length=16, choices=JobStatus, default=JobStatus.QUEUED)
    phase = models.CharField(max_length=32, blank=True)

    spec = models.JSONField(help_text="The job as asked.")
    spec_version = models.PositiveSmallIntegerField(default=1)
    terms = models.JSONField(help_text="As admitted: resources by slug, prices, limits, network, expiry.")
    terms_version = models.PositiveSmallIntegerField(default=1)
    chosen = models.JSONField(
        null=True,
        editable=False,
        help_text="Which environment a selector came to, because of what, and why no other.",
    )
    image_id = models.CharField(
        max_length=128, blank=True, help_text="Resolved before the first start, used from then on."
    )
    labels = models.JSONField(default=dict, blank=True)
    max_duration = models.PositiveIntegerField(
        help_text="Longest run in seconds, from the container's start."
    )
    max_attempts = models.PositiveSmallIntegerField(default=3)
    attempts_made = models.PositiveSmallIntegerField(default=0)

    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    not_before = models.DateTimeField(null=True, help_text="A retry waits until then.")
    queue_expires_at = models.DateTimeField(null=True, help_text="Expires in the queue at this time.")
    passed_over_since = models.DateTimeField(
        null=True, help_text="When its turn first came, it did not fit, and another was taken."
    )
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    cancel_reason = models.CharField(
        max_length=40, blank=True, help_text="The end reason that the request stands for."
    )
    started_at = models.DateTimeField(
        null=True, help_text="When the container of the deciding attempt started."
    )
    finished_at = models.DateTimeField(null=True)

    end_reason = models.CharField(max_length=40, blank=True)
    end_detail = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True)
    run_seconds = models.FloatField(null=True, help_text="Measured run time of the deciding attempt.")
    usage = models.JSONField(
        default=dict, blank=True, help_text="cpu_seconds, peak_memory_bytes, memory_kills, cut bytes."
    )
    result = models.JSONField(null=True, help_text="The parsed result.json, when there is one.")
    manifest = models.JSONField(null=True, help_text="Exit code and every output's path, size and sha256.")
    manifest_sha256 = models.CharField(max_length=64, blank=True)
    refused_outputs = models.JSONField(
        default=list, blank=True, help_text="Outputs not taken, with the reason."
    )
    storage_expires_at = models.DateTimeField(
        null=True, help_text="Artifacts and logs are removed at this time."
    )
    storage_purged_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(name="job_status_known", condition=in_list("status", JobStatus.values)),
            models.CheckConstraint(name="job_tier_known", condition=in_list("tier", Tier.values)),
            models.CheckConstraint(
                name="job_finished_exactly_when_final",
                condition=Q(status__in=sorted(FINAL), finished_at__isnull=False) & ~Q(end_reason="")
                | ~Q(status__in=sorted(FINAL)) & Q(finished_at__isnull=True, end_reason=""),
            ),
            models.CheckConstraint(
                name="job_end_reason_known", condition=Q(end_reason="") | in_list("end_reason", END_REASONS)
            ),
            models.CheckConstraint(
                name="job_cancel_request_complete",
                condition=Q(cancel_requested_at__isnull=True, cancel_reason="")
                | Q(
                    cancel_requested_at__isnull=False,
                    cancel_reason__in=["cancelled", "cancelled_by_operator"],
                ),
            ),
            models.CheckConstraint(
                name="job_attempts_bounded", condition=Q(attempts_made__lte=models.F("max_attempts"))
            ),
        ]
        indexes = [
            # `+ 0`: workers/turns.py
            models.Index(
                "environment", "tier", F("id") + 0, condition=Q(status="queued"), name="job_queued_in_turn"
            ),
            models.Index(
                *("environment", "tier", F("account") + 0, F("id") + 0),
                condition=Q(status="queued"),
                name="job_queued_in_account",
            ),
            models.Index(fields=["account"], condition=Q(status="queued"), name="job_queued_by_account"),
            models.Index(fields=["queue_expires_at"], condition=Q(status="queued"), name="job_queue_expiry"),
            models.Index(
                fields=["passed_over_since"],
                condition=Q(status="queued", passed_over_since__isnull=False),
                name="job_passed_over",
            ),
            models.Index(fields=["account", "-id"], name="job_by_account"),
            models.Index(fields=["status"], condition=~Q(status__in=sorted(FINAL)), name="job_not_final"),
            models.Index(
                fields=["storage_expires_at"], condition=Q(storage_purged_at__isnull=True), name="job_stored"
            ),
        ]

    def __str__(self) -> str:
        return self.short_id

    @property
    def amounts(self) -> dict[str, int]:
        """What each of its attempts reserves, by kind of resource: cores, MiB, counts; 0 where it asks for none."""
        found = dict.fromkeys(ResourceKind.values, 0)
        for slug, amount in self.terms["resources"].items():
            found[self.terms["kinds"][slug]] += amount
        return found

    @property
    def is_final(self) -> bool:
        return self.status in FINAL


class IdempotencyKey(models.Model):
    """One key of one account: the same key and body answers with the same job again."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    body_sha256 = models.CharField(max_length=64)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "key"], name="idempotency_key_once_per_account")
        ]

    def __str__(self) -> str:
        return self.key
