"""Engines: the Docker endpoints on our hosts, and the fleet."""

import re

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from compute_site.core.db import in_list
from compute_site.core.models import EditedModel
from environments.models.host import SLUG, Host

UNIX_ENDPOINT = re.compile(r"^unix:///[^\s\0]+$")
TCP_ENDPOINT = re.compile(r"^tcp://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):([1-9]\d{0,4})\Z", re.ASCII)
LARGEST_PORT = 65_535

NO_ENVIRONMENT = "The engine has no environment; add one, then activate the engine."
UPKEEP_LEAST = {"image_retention_days": 1, "image_cleanup_interval": 3_600, "payment_claim_interval": 60}


class EngineKind(models.TextChoices):
    DOCKER = "docker", "Docker"
    FLEET = "fleet", "fleet"


class EngineState(models.TextChoices):
    ACTIVE = "active", "active"
    DRAINING = "draining", "draining"
    DISABLED = "disabled", "disabled"


class ScanPolicy(models.TextChoices):
    OFF = "off", "off"
    REPORT = "report", "report"
    REFUSE = "refuse", "refuse"


class Engine(EditedModel):
    """One Docker endpoint on a host. A worker is pinned to exactly one engine.

    States: disabled → active (needs an environment) → draining (starts nothing new) → disabled; any may go back.
    """

    host = models.ForeignKey(
        Host,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="engines",
        help_text="The machine it stands on; a fleet engine has none.",
    )
    name = models.CharField(
        max_length=63, unique=True, validators=[SLUG], help_text="Unique; names its queue too."
    )
    kind = models.CharField(
        max_length=16, choices=EngineKind, default=EngineKind.DOCKER, help_text="What runs jobs."
    )
    endpoint = models.CharField(
        max_length=255, blank=True, help_text="unix:///path/to/docker.sock or tcp://host:2376 (TLS)."
    )
    tls_ca = models.CharField(max_length=255, blank=True, help_text="Path of the CA file, for tcp endpoints.")
    tls_certificate = models.CharField(
        max_length=255, blank=True, help_text="Path of the client certificate."
    )
    tls_key = models.CharField(max_length=255, blank=True, help_text="Path of the client key.")
    state = models.CharField(
        max_length=16,
        choices=EngineState,
        default=EngineState.DISABLED,
        help_text="Only an active engine starts jobs.",
    )
    image_retention_days = models.PositiveIntegerField(
        default=7,
        help_text="Days that an image stays which the site brought and nobody uses (at least 1).",
    )
    image_cleanup_interval = models.PositiveIntegerField(
        default=86_400,
        help_text="Seconds between two removals of images that nobody uses any more (at least 3600).",
    )
    scan_policy = models.CharField(
        max_length=16,
        choices=ScanPolicy,
        default=ScanPolicy.OFF,
        error_messages={"invalid_choice": "Found “%(value)s”; write off, report or refuse."},
        help_text="Whether an image that a job names is scanned before it runs (IMAGE_SCAN_COMMAND): report tells the job"
        " of findings, refuse does not run it.",
    )
    payment_claim_interval = models.PositiveIntegerField(
        default=3_600,
        help_text="Seconds between payment claims (at least 60). Only recorded: a job is billed when it ends, so"
        " there is nothing to claim.",
    )
    enable_benchmark = models.BooleanField(
        default=False,
        help_text="Opens the whole host to those who measure it (BENCHMARK_… settings), one job at a time and alone."
        " A measuring tool, not an offer.",
    )
    images_cleaned_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When its unused images were last removed."
    )
    docker_id = models.CharField(
        max_length=128,
        blank=True,
        editable=False,
        help_text="The engine's own id; a change means another engine.",
    )
    workspace_mode = models.CharField(
        max_length=16, blank=True, editable=False, help_text="How files get in and out: shared or archive."
    )
    disk_mode = models.CharField(
        max_length=16, blank=True, editable=False, help_text="How disk limits are kept: loop or watchdog."
    )
    facts = models.JSONField(default=dict, blank=True, editable=False, help_text="What the last probe found.")
    probed_at = models.DateTimeField(null=True, blank=True, editable=False)
    worker_seen_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Last sign of life of a worker of this engine."
    )
    watcher = models.BigIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text="The worker that watches it now; its key, opaque here.",
    )
    watched_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When another worker may take over the watch."
    )
    connection_lost_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Until then nobody watched it without a break: it may have been restarted.",
    )
    unreachable_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Set while the engine does not answer its worker."
    )

    network_granted = models.BooleanField(
        default=False,
        editable=False,
        help_text="Whether jobs can get a network here, as a worker found by trying.",
    )
    network_facts = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="Why it grants none, or the host's addresses, which no job reaches.",
    )
    network_tried_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(name="engine_kind_known", condition=in_list("kind", EngineKind.values)),
            models.CheckConstraint(name="engine_state_known", condition=in_list("state", EngineState.values)),
            models.CheckConstraint(
                name="engine_scan_policy_known", condition=in_list("scan_policy", ScanPolicy.values)
            ),
            models.CheckConstraint(
                name="engine_docker_has_host",
                condition=Q(kind=EngineKind.DOCKER, host__isnull=False)
                | Q(kind=EngineKind.FLEET, host__isnull=True),
                violation_error_message="A Docker engine stands on a host; a fleet engine has none.",
            ),
            models.CheckConstraint(
                name="engine_image_retention_at_least_one_day",
                condition=Q(image_retention_days__gte=1),
                violation_error_message="Images are kept at least one day.",
            ),
            models.CheckConstraint(
                name="engine_image_cleanup_at_least_hourly",
                condition=Q(image_cleanup_interval__gte=3_600),
                violation_error_message="The clean-up interval is at least 3600 seconds.",
            ),
            models.CheckConstraint(
                name="engine_claim_at_least_a_minute",
                condition=Q(payment_claim_interval__gte=60),
                violation_error_message="The claim interval is at least 60 seconds.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Endpoint and TLS files are complete, the host stays. Raises ValidationError with fields."""
        errors = self._endpoint_errors() if self.kind == EngineKind.DOCKER else {}
        for field, least in UPKEEP_LEAST.items():
            value = getattr(self, field)
            if type(value) is int and 0 <= value < least:
                errors[field] = f"Found {value}; enter at least {least}."
        if self.kind == EngineKind.DOCKER and self.host_id is None:
            errors["host"] = "A Docker engine stands on a host; choose one."
        if self.kind == EngineKind.FLEET and self.enable_benchmark:
            errors["enable_benchmark"] = "A fleet engine has no host to measure; leave it off."
        if error := self._scan_error():
            errors["scan_policy"] = error
        if self.kind == EngineKind.FLEET and self.host_id is not None:
            errors["host"] = "A fleet engine has no host; leave it empty."
        if self.state == EngineState.ACTIVE and not self._has_environment():
            errors["state"] = NO_ENVIRONMENT
        if self.pk is not None and self.environments.exists():
            before = Engine.objects.values("host_id", "kind").get(pk=self.pk)
            for field, was in before.items():
                if getattr(self, field) != was:
                    errors[field.removesuffix("_id")] = (
                        "It has environments, so this cannot change any more; make a new engine instead."
                    )
        if errors:
            raise ValidationError(errors)

    def _has_environment(self) -> bool:
        return self.pk is not None and self.environments.exclude(state="retired").exists()

    def _scan_error(self) -> str:
        if self.scan_policy not in (ScanPolicy.REPORT, ScanPolicy.REFUSE):
            return ""
        if self.kind == EngineKind.FLEET:
            return "A fleet engine has no images to scan; leave it off."
        if not settings.IMAGE_SCAN_COMMAND:
            return f"Found “{self.scan_policy}”, and there is no scanner; set IMAGE_SCAN_COMMAND, or leave it off."
        return ""

    def _endpoint_errors(self) -> dict[str, str]:
        tls = {name: getattr(self, name) for name in ("tls_ca", "tls_certificate", "tls_key")}
        tcp = TCP_ENDPOINT.match(self.endpoint)
        if not UNIX_ENDPOINT.match(self.endpoint) and not (tcp and int(tcp[1]) <= LARGEST_PORT):
            return {
                "endpoint": f"Found “{self.endpoint}”; write unix:///path/to/docker.sock or tcp://host:port."
            }
        if not any(tls.values()):
            return {}
        if self.endpoint.startswith("unix:"):
            return dict.fromkeys(
                (name for name, value in tls.items() if value), "A socket needs no TLS; leave it empty."
            )
        return {
            name: "TLS needs all three files: CA, certificate and key; enter this one or leave all empty."
            for name, value in tls.items()
            if not value
        }

    @property
    def queue(self) -> str:
        """The name of the Celery queue on which this engine's worker hears knocks."""
        return f"engine.{self.name}"
