"""Machines: a host, its cores and devices, and the engines on it."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q

from compute_site.core.db import in_list
from compute_site.core.models import PublicModel

SLUG = RegexValidator(
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "Use lower-case letters, digits and hyphens, at most 63 characters."
)


class Host(PublicModel):
    """One physical machine. Physical limits belong to it, so two engines on it can never both hand out a core.

    The row is also the lock: every reservation on the machine is made and released under it.
    """

    name = models.CharField(max_length=63, unique=True, validators=[SLUG], help_text="Short unique name, e.g. “rack1-a”.")
    architecture = models.CharField(max_length=32, blank=True, help_text="Processor architecture, e.g. amd64 or arm64.")
    operating_system = models.CharField(max_length=128, blank=True, help_text="As the engine reports it.")
    cpu_count = models.PositiveIntegerField(default=0, help_text="Number of CPU cores; detected, or entered by hand.")
    memory_mib = models.PositiveBigIntegerField(default=0, help_text="Physical memory in MiB.")
    disk_mib = models.PositiveBigIntegerField(default=0, help_text="Size of the engine's data disk in MiB.")
    reserve_memory_mib = models.PositiveBigIntegerField(
        default=0, help_text="Memory kept for the system in MiB; never handed out."
    )
    reserve_disk_mib = models.PositiveBigIntegerField(default=0, help_text="Disk kept for the system in MiB.")
    detected_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When it was last detected.")
    declared_gone_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="An operator declared that the machine no longer exists."
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="host_memory_reserve_fits", condition=Q(reserve_memory_mib__lte=F("memory_mib")),
                violation_error_message="The memory reserve is larger than the host's memory.",
            ),
            models.CheckConstraint(
                name="host_disk_reserve_fits", condition=Q(reserve_disk_mib__lte=F("disk_mib")),
                violation_error_message="The disk reserve is larger than the host's disk.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def usable_memory_mib(self) -> int:
        return self.memory_mib - self.reserve_memory_mib

    @property
    def usable_disk_mib(self) -> int:
        return self.disk_mib - self.reserve_disk_mib


class Core(models.Model):
    """One CPU core of a host. It belongs to at most one environment, by shape."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="cores")
    index = models.PositiveIntegerField(help_text="The core's number on the host, from 0.")
    environment = models.ForeignKey(
        "environments.Environment", on_delete=models.PROTECT, null=True, blank=True, related_name="cores",
        help_text="The one environment that offers this core; empty = nobody.",
    )

    class Meta:
        ordering = ["host", "index"]
        constraints = [models.UniqueConstraint(fields=["host", "index"], name="core_once_per_host")]

    def __str__(self) -> str:
        return f"{self.host} core {self.index}"


class DeviceHealth(models.TextChoices):
    HEALTHY = "healthy", "healthy"
    UNHEALTHY = "unhealthy", "unhealthy"


class Device(PublicModel):
    """One GPU or other accelerator of a host, known by its UUID: an index may change, a UUID does not."""

    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="devices")
    uuid = models.CharField(max_length=128, unique=True, help_text="The device's own id, e.g. GPU-5d1f….")
    kind = models.CharField(max_length=32, default="gpu", help_text="What it is, e.g. gpu.")
    platform = models.CharField(max_length=32, default="nvidia", help_text="nvidia, amd or intel.")
    model = models.CharField(max_length=128, blank=True, help_text="Model name as its driver reports it.")
    memory_mib = models.PositiveBigIntegerField(default=0, help_text="Device memory in MiB.")
    driver_version = models.CharField(max_length=64, blank=True, help_text="Version of the driver.")
    health = models.CharField(
        max_length=16, choices=DeviceHealth, default=DeviceHealth.HEALTHY, help_text="Unhealthy devices are not handed out."
    )

    class Meta:
        ordering = ["host", "pk"]
        constraints = [models.CheckConstraint(name="device_health_known", condition=in_list("health", DeviceHealth.values))]

    def __str__(self) -> str:
        return f"{self.model or self.kind} {self.uuid[-8:]}"


class EngineKind(models.TextChoices):
    DOCKER = "docker", "Docker"
    FLEET = "fleet", "fleet"


class EngineState(models.TextChoices):
    ACTIVE = "active", "active"
    DRAINING = "draining", "draining"
    DISABLED = "disabled", "disabled"


class Engine(PublicModel):
    """One Docker endpoint on a host. A worker is pinned to exactly one engine.

    States: disabled → active (needs an environment) → draining (starts nothing new) → disabled; any may go back.
    """

    host = models.ForeignKey(Host, on_delete=models.PROTECT, null=True, blank=True, related_name="engines")
    name = models.CharField(max_length=63, unique=True, validators=[SLUG], help_text="Unique; names its queue too.")
    kind = models.CharField(max_length=16, choices=EngineKind, default=EngineKind.DOCKER, help_text="What runs jobs.")
    endpoint = models.CharField(
        max_length=255, blank=True, help_text="unix:///path/to/docker.sock or tcp://host:2376 (TLS)."
    )
    tls_ca = models.CharField(max_length=255, blank=True, help_text="Path of the CA file, for tcp endpoints.")
    tls_certificate = models.CharField(max_length=255, blank=True, help_text="Path of the client certificate.")
    tls_key = models.CharField(max_length=255, blank=True, help_text="Path of the client key.")
    state = models.CharField(
        max_length=16, choices=EngineState, default=EngineState.DISABLED, help_text="Only an active engine starts jobs."
    )
    image_retention_days = models.PositiveIntegerField(default=7, help_text="Unused images are removed after this many days (at least 1).")
    image_cleanup_interval = models.PositiveIntegerField(default=86_400, help_text="Seconds between image clean-ups (at least 3600).")
    payment_claim_interval = models.PositiveIntegerField(default=3_600, help_text="Seconds between payment claims (at least 60).")
    docker_id = models.CharField(max_length=128, blank=True, editable=False, help_text="The engine's own id; a change means another engine.")
    workspace_mode = models.CharField(max_length=16, blank=True, editable=False, help_text="How files get in and out: shared or archive.")
    disk_mode = models.CharField(max_length=16, blank=True, editable=False, help_text="How disk limits are kept: loop or watchdog.")
    facts = models.JSONField(default=dict, blank=True, editable=False, help_text="What the last probe found.")
    probed_at = models.DateTimeField(null=True, blank=True, editable=False)
    unreachable_since = models.DateTimeField(null=True, blank=True, editable=False, help_text="Set while the engine does not answer its worker.")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(name="engine_kind_known", condition=in_list("kind", EngineKind.values)),
            models.CheckConstraint(name="engine_state_known", condition=in_list("state", EngineState.values)),
            models.CheckConstraint(
                name="engine_docker_has_host",
                condition=Q(kind=EngineKind.DOCKER, host__isnull=False) | Q(kind=EngineKind.FLEET, host__isnull=True),
                violation_error_message="A Docker engine stands on a host; a fleet engine has none.",
            ),
            models.CheckConstraint(
                name="engine_image_retention_at_least_one_day", condition=Q(image_retention_days__gte=1),
                violation_error_message="Images are kept at least one day.",
            ),
            models.CheckConstraint(
                name="engine_image_cleanup_at_least_hourly", condition=Q(image_cleanup_interval__gte=3_600),
                violation_error_message="The clean-up interval is at least 3600 seconds.",
            ),
            models.CheckConstraint(
                name="engine_claim_at_least_a_minute", condition=Q(payment_claim_interval__gte=60),
                violation_error_message="The claim interval is at least 60 seconds.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def queue(self) -> str:
        """The name of the Celery queue on which this engine's worker hears knocks."""
        return f"engine.{self.name}"
