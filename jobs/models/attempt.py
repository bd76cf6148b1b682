"""One try of a job on an engine."""

import uuid

from django.db import models
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import PublicModel
from environments.models import Engine
from jobs.end_reasons import END_REASONS
from jobs.models.job import Job


class AttemptStatus(models.TextChoices):
    PREPARING = "preparing", "preparing"
    CREATED = "created", "created"
    STARTING = "starting", "starting"
    RUNNING = "running", "running"
    COLLECTING = "collecting", "collecting"
    SETTLED = "settled", "settled"
    FAILED = "failed", "failed"
    ABANDONED = "abandoned", "abandoned"


S = AttemptStatus
FINAL = frozenset({S.SETTLED, S.FAILED, S.ABANDONED})
UNFINISHED = frozenset(AttemptStatus.values) - FINAL
TRANSITIONS: dict[str, frozenset[str]] = {
    S.PREPARING: frozenset({S.CREATED, S.COLLECTING, S.SETTLED, S.FAILED, S.ABANDONED}),
    S.CREATED: frozenset({S.STARTING, S.COLLECTING, S.SETTLED, S.FAILED, S.ABANDONED}),
    S.STARTING: frozenset({S.RUNNING, S.COLLECTING, S.SETTLED, S.FAILED, S.ABANDONED}),
    S.RUNNING: frozenset({S.COLLECTING, S.FAILED, S.ABANDONED}),
    S.COLLECTING: frozenset({S.SETTLED, S.FAILED}),
    S.SETTLED: frozenset(),
    S.FAILED: frozenset(),
    S.ABANDONED: frozenset(),
}


class Attempt(PublicModel):
    """One try of a job. The token fences it, the lease says who does its current step.

    | from | to | by |
    |---|---|---|
    | preparing | created | the container exists and is recorded |
    | created | starting | the start is allowed: no cancel flag, effective configuration equals the policy |
    | starting | running | Docker says that it started |
    | running (or earlier, seen exited) | collecting | exit facts recorded, once; cores, devices, memory released |
    | collecting | settled | result and reason written with the job |
    | preparing, created, starting | settled | ended before its container ran (cancelled, its own fault) |
    | any unfinished | failed | ended by our fault; the job is queued again or failed |
    | up to running | abandoned | a start that cannot be confirmed; its name is held by a tombstone |

    A finished attempt whose reservation is live still has to be cleaned.
    """

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="attempts")
    number = models.PositiveSmallIntegerField()
    engine = models.ForeignKey(Engine, on_delete=models.PROTECT, related_name="attempts")
    status = models.CharField(max_length=16, choices=AttemptStatus, default=AttemptStatus.PREPARING)
    token = models.UUIDField(
        default=uuid.uuid4, editable=False, help_text="Fences the attempt; never changes."
    )
    nonce = models.UUIDField(
        default=uuid.uuid4, editable=False, help_text="Tells our container from a stranger's."
    )
    uid = models.PositiveBigIntegerField(help_text="The reserved numeric user.")
    cores = models.JSONField(default=list, help_text="Indexes of the reserved cores.")
    device_uuids = models.JSONField(default=list, help_text="UUIDs of the reserved devices.")

    lease = models.UUIDField(null=True, help_text="New at each claim of a step.")
    lease_worker = models.BigIntegerField(
        null=True, help_text="Id of the worker that claimed the step; opaque here."
    )
    lease_until = models.DateTimeField(null=True)
    step_deadline = models.DateTimeField(null=True, help_text="A lease is not renewed beyond this.")
    not_before = models.DateTimeField(
        null=True, help_text="The next try of the current step waits until then."
    )
    step_tries = models.PositiveSmallIntegerField(default=0, help_text="Failed tries of the current step.")

    container_name = models.CharField(max_length=128)
    container_id = models.CharField(max_length=128, blank=True)
    image_id = models.CharField(max_length=128, blank=True)
    architecture = models.CharField(max_length=32, blank=True)
    effective = models.JSONField(default=dict, blank=True, help_text="The sandbox as read back from Docker.")

    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    started_at = models.DateTimeField(null=True, help_text="Docker's StartedAt.")
    stop_reason = models.CharField(
        max_length=40, blank=True, help_text="Written before the first signal; the first wins."
    )
    stop_signalled_at = models.DateTimeField(null=True)
    exited_at = models.DateTimeField(null=True, help_text="Docker's FinishedAt.")
    exit_code = models.IntegerField(null=True)
    exit_facts = models.JSONField(
        default=dict, blank=True, help_text="Docker's state, the launcher's marker, OOM facts."
    )
    end_reason = models.CharField(max_length=40, blank=True)
    end_detail = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True)
    cleaned_at = models.DateTimeField(null=True, help_text="When nothing of it was left on the engine.")
    leftover = models.TextField(blank=True, help_text="What could not be removed yet, and why.")

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once_per_job"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(status__in=sorted(UNFINISHED)), name="attempt_one_live_per_job"
            ),
            models.UniqueConstraint(fields=["container_name"], name="attempt_container_name_once"),
            models.CheckConstraint(
                name="attempt_status_known", condition=in_list("status", AttemptStatus.values)
            ),
            models.CheckConstraint(
                name="attempt_finished_exactly_when_final",
                condition=Q(status__in=sorted(FINAL), finished_at__isnull=False) & ~Q(end_reason="")
                | Q(status__in=sorted(UNFINISHED), finished_at__isnull=True, end_reason=""),
            ),
            models.CheckConstraint(
                name="attempt_end_reason_known",
                condition=Q(end_reason="") | in_list("end_reason", END_REASONS),
            ),
        ]
        indexes = [
            models.Index(
                fields=["engine", "status"], condition=Q(cleaned_at__isnull=True), name="attempt_to_do"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job} #{self.number}"
