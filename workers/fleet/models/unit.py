"""Units, their replicas, and what is done when replicas disagree."""

import uuid

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import PublicModel
from environments.models import EngineKind, Environment, EnvironmentState
from jobs.models import Attempt, Job
from workers.fleet.models.owner import Owner, RemoteWorker


class FleetPolicy(models.Model):
    """How the fleet serves an environment. Times in seconds."""

    environment = models.OneToOneField(Environment, on_delete=models.PROTECT, related_name="fleet_policy")
    audit_environment = models.ForeignKey(
        Environment,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Where a disputed unit is run again: one of a trusted engine of ours.",
    )
    replicas = models.PositiveSmallIntegerField(
        default=2, help_text="How many owners must come to the same result."
    )
    max_attempts = models.PositiveSmallIntegerField(
        default=3, help_text="How often a replica is given to a worker."
    )
    degrade_after = models.PositiveIntegerField(
        default=600, help_text="Seconds after which fewer owners than wanted are enough."
    )
    accept_degraded = models.BooleanField(
        default=True, help_text="Whether a result of fewer owners counts; else the unit fails."
    )
    lease = models.PositiveIntegerField(
        default=60, help_text="Seconds without progress after which a replica is given to another worker."
    )

    class Meta:
        verbose_name_plural = "fleet policies"
        constraints = [
            models.CheckConstraint(
                name="fleet_policy_positive",
                condition=Q(replicas__gte=1, max_attempts__gte=1, lease__gte=5),
            ),
            models.CheckConstraint(
                name="fleet_policy_audits_elsewhere", condition=~Q(environment=models.F("audit_environment"))
            ),
        ]

    def __str__(self) -> str:
        return str(self.environment)

    def clean(self) -> None:
        """The fleet serves the one environment; the other is of an engine that we trust."""
        errors = {}
        if self.environment_id and self.environment.engine.kind != EngineKind.FLEET:
            errors["environment"] = f"{self.environment} is not on a fleet engine; choose one that is."
        if self.audit_environment_id and self.audit_environment.engine.kind == EngineKind.FLEET:
            text = f"{self.audit_environment} is served by remote workers; choose one of an engine of ours."
            errors["audit_environment"] = text
        elif self.audit_environment_id and self.audit_environment.state == EnvironmentState.RETIRED:
            text = f"{self.audit_environment} is retired: no audit would run there; choose another."
            errors["audit_environment"] = text
        if errors:
            raise ValidationError(errors)


class UnitStatus(models.TextChoices):
    PENDING = "pending", "pending"
    ASSIGNED = "assigned", "assigned"
    COMPLETED = "completed", "completed"
    DISPUTED = "disputed", "disputed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


U = UnitStatus
UNIT_OPEN = frozenset({U.PENDING, U.ASSIGNED})
UNIT_FINAL = frozenset(UnitStatus.values) - UNIT_OPEN
UNIT_TRANSITIONS: dict[str, frozenset[str]] = {
    U.PENDING: frozenset({U.ASSIGNED, U.FAILED, U.CANCELLED}),
    U.ASSIGNED: frozenset({U.COMPLETED, U.DISPUTED, U.FAILED, U.CANCELLED}),
    U.COMPLETED: frozenset(),
    U.DISPUTED: frozenset(),
    U.FAILED: frozenset(),
    U.CANCELLED: frozenset(),
}


class Unit(PublicModel):
    """One piece of work, made from a job's attempt on a fleet engine.

    | from | to | by |
    |---|---|---|
    | pending | assigned | the first replica was given to a worker |
    | assigned | completed | every result is in, all are equal; the job is settled with it |
    | assigned | disputed | two results differ; none of them counts, an audit is made |
    | pending, assigned | failed | no replica came to a result, or too few |
    | pending, assigned | cancelled | its job was |
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, related_name="fleet_unit")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="+")
    status = models.CharField(max_length=16, choices=UnitStatus, default=UnitStatus.PENDING)
    wanted = models.PositiveSmallIntegerField(help_text="Replicas by the policy.")
    degraded = models.BooleanField(default=False, help_text="Fewer owners than wanted took part.")
    waits_for = models.CharField(max_length=200, blank=True, help_text="Why a replica has no worker yet.")
    manifest_sha256 = models.CharField(max_length=64, blank=True, help_text="The result that counts.")
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="fleet_unit_status_known", condition=in_list("status", UnitStatus.values)
            ),
            models.CheckConstraint(
                name="fleet_unit_finished_exactly_when_final",
                condition=Q(status__in=sorted(UNIT_FINAL), finished_at__isnull=False)
                | Q(status__in=sorted(UNIT_OPEN), finished_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(fields=["id"], condition=Q(status__in=sorted(UNIT_OPEN)), name="fleet_unit_open")
        ]

    def __str__(self) -> str:
        return self.short_id


class ReplicaStatus(models.TextChoices):
    WAITING = "waiting", "waiting"
    ASSIGNED = "assigned", "assigned"
    RUNNING = "running", "running"
    REPORTED = "reported", "reported"
    FAILED = "failed", "failed"
    DROPPED = "dropped", "dropped"


R = ReplicaStatus
HELD = frozenset({R.ASSIGNED, R.RUNNING})
REPLICA_OPEN = HELD | {R.WAITING}
REPLICA_TRANSITIONS: dict[str, frozenset[str]] = {
    R.WAITING: frozenset({R.ASSIGNED, R.FAILED, R.DROPPED}),
    R.ASSIGNED: frozenset({R.RUNNING, R.WAITING, R.FAILED, R.DROPPED}),
    R.RUNNING: frozenset({R.REPORTED, R.WAITING, R.FAILED, R.DROPPED}),
    R.REPORTED: frozenset(),
    R.FAILED: frozenset(),
    R.DROPPED: frozenset(),
}


class Replica(PublicModel):
    """One remote worker's execution of a unit. Each assignment has a token of its own; an old one is worth nothing.

    | from | to | by |
    |---|---|---|
    | waiting | assigned | a worker was chosen; deadline and lease run from now |
    | assigned | running | the worker pulled it |
    | assigned, running | waiting | its worker could not do it, is stale or retired, or let lease or deadline pass; tries are left |
    | running | reported | its result came, with a valid proof |
    | waiting, assigned, running | failed | no try is left, or the program itself could not end well |
    | waiting, assigned, running | dropped | fewer owners were enough, or the unit ended without it |
    """

    unit = models.ForeignKey(Unit, on_delete=models.PROTECT, related_name="replicas")
    number = models.PositiveSmallIntegerField()
    status = models.CharField(max_length=16, choices=ReplicaStatus, default=ReplicaStatus.WAITING)
    worker = models.ForeignKey(RemoteWorker, on_delete=models.PROTECT, null=True, related_name="replicas")
    owner = models.ForeignKey(Owner, on_delete=models.PROTECT, null=True, related_name="+")
    token = models.UUIDField(default=uuid.uuid4, help_text="New at each assignment.")
    tries = models.PositiveSmallIntegerField(default=0)
    assigned_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    lease_until = models.DateTimeField(null=True)
    lapses = models.JSONField(default=list, blank=True, help_text="Workers that lost it, and why.")
    progress = models.JSONField(default=dict, blank=True)
    manifest = models.JSONField(null=True)
    manifest_sha256 = models.CharField(max_length=64, blank=True)
    proof = models.JSONField(null=True)
    result = models.JSONField(null=True)
    run_seconds = models.FloatField(null=True)
    failure = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["unit", "number"]
        constraints = [
            models.UniqueConstraint(fields=["unit", "number"], name="fleet_replica_number_once"),
            models.UniqueConstraint(fields=["unit", "owner"], name="fleet_replica_one_per_owner"),
            models.CheckConstraint(
                name="fleet_replica_status_known", condition=in_list("status", ReplicaStatus.values)
            ),
            models.CheckConstraint(
                name="fleet_replica_held_complete",
                condition=~Q(status__in=sorted(HELD))
                | Q(
                    worker__isnull=False,
                    owner__isnull=False,
                    deadline__isnull=False,
                    lease_until__isnull=False,
                ),
            ),
            models.CheckConstraint(
                name="fleet_replica_reported_with_proof",
                condition=~Q(status="reported")
                | Q(manifest__isnull=False, proof__isnull=False) & ~Q(manifest_sha256=""),
            ),
        ]
        indexes = [
            models.Index(fields=["worker"], condition=Q(status__in=sorted(HELD)), name="fleet_replica_held")
        ]

    def __str__(self) -> str:
        return f"{self.unit} #{self.number}"


class AuditStatus(models.TextChoices):
    PENDING = "pending", "pending"
    PASSED = "passed", "passed"
    RESOLVED = "mismatch_resolved", "mismatch resolved"
    FAILED = "failed", "failed"


AUDIT_TRANSITIONS: dict[str, frozenset[str]] = {
    AuditStatus.PENDING: frozenset({AuditStatus.PASSED, AuditStatus.RESOLVED, AuditStatus.FAILED}),
    AuditStatus.PASSED: frozenset(),
    AuditStatus.RESOLVED: frozenset(),
    AuditStatus.FAILED: frozenset(),
}


class Audit(PublicModel):
    """A disputed unit, run again as a job on a trusted engine.

    | from | to | by |
    |---|---|---|
    | pending | passed | its result is that of every replica |
    | pending | mismatch_resolved | its result tells which replicas were wrong: each gets a fault |
    | pending | failed | it came to no result of its own |
    """

    unit = models.OneToOneField(Unit, on_delete=models.PROTECT, related_name="audit")
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="+")
    status = models.CharField(max_length=20, choices=AuditStatus, default=AuditStatus.PENDING)
    manifest_sha256 = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="fleet_audit_status_known", condition=in_list("status", AuditStatus.values)
            )
        ]

    def __str__(self) -> str:
        return f"audit of {self.unit}"


class Fault(models.Model):
    """A wrong result of a worker, by the word of an audit. Append-only."""

    unit = models.ForeignKey(Unit, on_delete=models.PROTECT, related_name="faults")
    worker = models.ForeignKey(RemoteWorker, on_delete=models.PROTECT, related_name="faults")
    found = models.CharField(max_length=64, help_text="The manifest's sha256 that the worker signed.")
    expected = models.CharField(max_length=64, help_text="That of the audit.")
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        ordering = ["-pk"]
        constraints = [models.UniqueConstraint(fields=["unit", "worker"], name="fleet_fault_once")]

    def __str__(self) -> str:
        return f"{self.worker} in {self.unit}"
