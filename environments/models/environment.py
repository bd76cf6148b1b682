"""An environment: one offer on one engine."""

from django.db import models
from django.db.models import F, Q

from compute_site.core.db import in_list
from compute_site.core.models import PublicModel
from environments.models.host import SLUG, Engine, Host


class EnvironmentState(models.TextChoices):
    ACTIVE = "active", "active"
    DRAINING = "draining", "draining"
    RETIRED = "retired", "retired"


class Environment(PublicModel):
    """One offer on one engine, with its own cores, memory, disk, devices, prices and limits.

    States: active ⇄ draining (takes no new jobs, finishes what it has) → retired (final in practice: no jobs left).
    """

    engine = models.ForeignKey(Engine, on_delete=models.PROTECT, related_name="environments")
    slug = models.CharField(max_length=63, validators=[SLUG], help_text="Stable id, unique on its engine; independent of prices.")
    description = models.TextField(blank=True, help_text="What clients read about it.")
    state = models.CharField(max_length=16, choices=EnvironmentState, default=EnvironmentState.ACTIVE, help_text="Only an active environment takes new jobs.")
    storage_expiry = models.PositiveIntegerField(default=604_800, help_text="Seconds for which results are kept (default 7 days).")
    min_job_duration = models.PositiveIntegerField(default=60, help_text="Shortest billed duration in seconds.")
    max_job_duration = models.PositiveIntegerField(default=3_600, help_text="Longest run of a job in seconds.")
    max_jobs = models.PositiveIntegerField(null=True, blank=True, help_text="Most paid jobs at once; empty = no limit but the resources.")
    max_queue_wait = models.PositiveIntegerField(null=True, blank=True, help_text="Longest wait in the queue in seconds; empty = no limit.")
    enable_network = models.BooleanField(default=False, help_text="Whether jobs may reach the network.")
    version = models.PositiveIntegerField(default=1, editable=False, help_text="Grows with each edit; a stale form is refused.")

    class Meta:
        ordering = ["engine", "slug"]
        constraints = [
            models.UniqueConstraint(fields=["engine", "slug"], name="environment_slug_once_per_engine",
                violation_error_message="This engine already has an environment with this slug."),
            models.CheckConstraint(name="environment_state_known", condition=in_list("state", EnvironmentState.values)),
            models.CheckConstraint(
                name="environment_expiry_covers_duration", condition=Q(storage_expiry__gte=F("max_job_duration")),
                violation_error_message="storage_expiry must be at least max_job_duration.",
            ),
            models.CheckConstraint(
                name="environment_durations_ordered", condition=Q(min_job_duration__lte=F("max_job_duration")),
                violation_error_message="min_job_duration must not exceed max_job_duration.",
            ),
            models.CheckConstraint(
                name="environment_durations_positive",
                condition=Q(min_job_duration__gt=0, max_job_duration__gt=0, storage_expiry__gt=0)
                & (Q(max_queue_wait__isnull=True) | Q(max_queue_wait__gt=0)),
                violation_error_message="Durations are whole seconds greater than 0.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.engine.name}/{self.slug}"

    @property
    def host(self) -> Host:
        host = self.engine.host
        if host is None:
            raise Host.DoesNotExist(f"{self}: a fleet engine stands on no host of ours")
        return host
