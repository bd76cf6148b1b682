"""An environment: one offer on one engine."""

import re

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from compute_site.core.db import in_list
from compute_site.core.models import EditedModel
from environments.models.engine import Engine, EngineKind
from environments.models.host import SLUG, Host

LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z")
MAX_LABELS = 32
MAX_LABEL_BYTES = 255


class EnvironmentState(models.TextChoices):
    ACTIVE = "active", "active"
    DRAINING = "draining", "draining"
    RETIRED = "retired", "retired"


def duration_errors(terms: models.Model) -> dict[str, str]:
    """What is wrong with min/max duration and storage expiry (seconds) of an environment or free tier, by field."""
    names = ("min_job_duration", "max_job_duration", "storage_expiry")
    values = {name: getattr(terms, name) for name in names}
    if any(type(value) is not int or value < 0 for value in values.values()):
        return {}  # the field itself was refused already
    errors = {
        name: "Found 0; enter whole seconds greater than 0." for name, value in values.items() if value == 0
    }
    shortest, longest, expiry = values.values()
    if shortest > longest:
        errors["min_job_duration"] = (
            f"{shortest} s is longer than max_job_duration ({longest} s); lower it or raise the other."
        )
    if expiry < longest:
        errors["storage_expiry"] = (
            f"{expiry} s is shorter than max_job_duration ({longest} s); results must outlive the run."
        )
    return errors


def label_error(labels: object) -> str:
    """What is wrong with labels (a mapping of short names to short texts), or an empty text."""
    if not isinstance(labels, dict):
        return f"Found {labels!r:.80}; enter names with texts."
    if len(labels) > MAX_LABELS:
        return f"Found {len(labels)} labels; keep at most {MAX_LABELS}."
    for name, text in labels.items():
        if not isinstance(name, str) or not LABEL.match(name):
            return f"{name!r:.80} is no name of a label: letters, digits and ._/- between them, at most 63."
        if (
            not isinstance(text, str)
            or not 1 <= len(text.encode()) <= MAX_LABEL_BYTES
            or not text.isprintable()
        ):
            return f"{name}: found {text!r:.80}; enter a text of 1 to {MAX_LABEL_BYTES} bytes on one line."
    return ""


class Environment(EditedModel):
    """One offer on one engine, with its own cores, memory, disk, devices, prices and limits.

    States: active ⇄ draining (takes no new jobs, finishes what it has) → retired (final in practice: no jobs left).
    """

    engine = models.ForeignKey(
        Engine,
        on_delete=models.PROTECT,
        related_name="environments",
        help_text="Where its jobs run; cannot change later.",
    )
    slug = models.CharField(
        max_length=63, validators=[SLUG], help_text="Stable id, unique on its engine; independent of prices."
    )
    description = models.TextField(blank=True, help_text="What clients read about it.")
    labels = models.JSONField(
        default=dict,
        blank=True,
        help_text="What jobs may select it by: names with short texts, for example gpu = a100.",
    )
    state = models.CharField(
        max_length=16,
        choices=EnvironmentState,
        default=EnvironmentState.ACTIVE,
        help_text="Only an active environment takes new jobs.",
    )
    storage_expiry = models.PositiveIntegerField(
        default=604_800, help_text="Seconds for which results are kept (default 7 days)."
    )
    min_job_duration = models.PositiveIntegerField(
        default=60, help_text="Shortest billed duration in seconds."
    )
    max_job_duration = models.PositiveIntegerField(
        default=3_600, help_text="Longest run of a job in seconds."
    )
    max_jobs = models.PositiveIntegerField(
        null=True, blank=True, help_text="Most paid jobs at once; empty = no limit but the resources."
    )
    max_queue_wait = models.PositiveIntegerField(
        null=True, blank=True, help_text="Longest wait in the queue in seconds; empty = no limit."
    )
    enable_network = models.BooleanField(
        default=False,
        help_text="Whether its jobs reach the internet, and nothing private. Jobs keep what they were admitted with.",
    )

    benchmark = models.BooleanField(
        default=False,
        editable=False,
        help_text="Measures its host, see environments/benchmark.py; kept by the engine's switch, not by hand.",
    )

    class Meta:
        ordering = ["engine", "slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["engine"],
                condition=Q(benchmark=True),
                name="environment_one_benchmark_per_engine",
                violation_error_message="This engine already has a benchmark environment.",
            ),
            models.UniqueConstraint(
                fields=["engine", "slug"],
                name="environment_slug_once_per_engine",
                violation_error_message="This engine already has an environment with this slug.",
            ),
            models.CheckConstraint(
                name="environment_state_known", condition=in_list("state", EnvironmentState.values)
            ),
            models.CheckConstraint(
                name="environment_expiry_covers_duration",
                condition=Q(storage_expiry__gte=F("max_job_duration")),
                violation_error_message="storage_expiry must be at least max_job_duration.",
            ),
            models.CheckConstraint(
                name="environment_durations_ordered",
                condition=Q(min_job_duration__lte=F("max_job_duration")),
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

    def clean(self) -> None:
        """Durations fit together, labels are short texts, the engine stays. Raises ValidationError with fields."""
        errors = duration_errors(self)
        if wrong := label_error(self.labels):
            errors["labels"] = wrong
        if self.max_queue_wait == 0:
            errors["max_queue_wait"] = (
                "Found 0; enter seconds greater than 0, or leave it empty for no limit."
            )
        if (
            self.pk is not None
            and not Environment.objects.filter(pk=self.pk, engine_id=self.engine_id).exists()
        ):
            errors["engine"] = "An environment stays on its engine; make a new one there and retire this one."
        if self.enable_network and self.engine.kind == EngineKind.FLEET:
            errors["enable_network"] = "Found on; remote workers give jobs no network: leave it off."
        if errors:
            raise ValidationError(errors)

    @property
    def host(self) -> Host:
        host = self.engine.host
        if host is None:
            raise Host.DoesNotExist(f"{self}: a fleet engine stands on no host of ours")
        return host
