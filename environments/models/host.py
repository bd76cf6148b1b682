"""Machines: a host, its cores and its devices."""

import re

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from compute_site.core.db import in_list
from compute_site.core.models import EditedModel, in_lower_case
from compute_site.core.numbers import shown

SLUG = RegexValidator(
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z",
    "Use lower-case letters, digits and hyphens, at most 63 characters.",
)

# One device and no other: a driver reads a list of ids at commas, and some words as all devices, or none.
DEVICE_ID = re.compile(r"(?!(?:all|none|void)\Z)[!-+\--~]+\Z", re.IGNORECASE)
NVIDIA = "nvidia"  # the platform whose devices a driver's own request hands out, by UUID


class Host(EditedModel):
    """One physical machine. Physical limits belong to it, so two engines on it can never both hand out a core.

    The row is also the lock: every reservation on the machine is made and released under it.
    """

    name = models.CharField(
        max_length=63, unique=True, validators=[SLUG], help_text="Short unique name, e.g. “rack1-a”."
    )
    architecture = models.CharField(
        max_length=32, blank=True, help_text="Processor architecture, e.g. amd64 or arm64."
    )
    operating_system = models.CharField(max_length=128, blank=True, help_text="As the engine reports it.")
    cpu_count = models.PositiveIntegerField(
        default=0, help_text="Number of CPU cores; detected, or entered by hand."
    )
    memory_mib = models.PositiveBigIntegerField(default=0, help_text="Physical memory in MiB.")
    disk_mib = models.PositiveBigIntegerField(default=0, help_text="Size of the engine's data disk in MiB.")
    reserve_memory_mib = models.PositiveBigIntegerField(
        default=0, help_text="Memory kept for the system in MiB; never handed out."
    )
    reserve_disk_mib = models.PositiveBigIntegerField(default=0, help_text="Disk kept for the system in MiB.")
    detected_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When it was last detected."
    )
    # What detection found last: another size than that was entered by hand.
    detected_cpu_count = models.PositiveIntegerField(null=True, editable=False)
    detected_memory_mib = models.PositiveBigIntegerField(null=True, editable=False)
    detected_disk_mib = models.PositiveBigIntegerField(null=True, editable=False)
    declared_gone_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="An operator declared that the machine no longer exists.",
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="host_memory_reserve_fits",
                condition=Q(reserve_memory_mib__lte=F("memory_mib")),
                violation_error_message="The memory reserve is larger than the host's memory.",
            ),
            models.CheckConstraint(
                name="host_disk_reserve_fits",
                condition=Q(reserve_disk_mib__lte=F("disk_mib")),
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

    def clean(self) -> None:
        """The reserves fit into the machine. Raises ValidationError with fields."""
        errors = {}
        for name, unit in (("memory", "memory"), ("disk", "disk")):
            reserve, physical = getattr(self, f"reserve_{name}_mib"), getattr(self, f"{name}_mib")
            if type(reserve) is int and type(physical) is int and reserve > physical:
                errors[f"reserve_{name}_mib"] = (
                    f"The reserve of {reserve} MiB is larger than the host's {unit} of {physical} MiB; lower it."
                )
        if errors:
            raise ValidationError(errors)


class Core(models.Model):
    """One CPU core of a host. It belongs to at most one environment, by shape."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="cores")
    index = models.PositiveIntegerField(help_text="The core's number on the host, from 0.")
    environment = models.ForeignKey(
        "environments.Environment",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="cores",
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


class Device(EditedModel):
    """One GPU or other accelerator of a host, known by its UUID: an index may change, a UUID does not."""

    host = models.ForeignKey(
        Host,
        on_delete=models.PROTECT,
        related_name="devices",
        help_text="The machine it sits in; cannot change later.",
    )
    uuid = models.CharField(max_length=128, unique=True, help_text="The device's own id, e.g. GPU-5d1f….")
    kind = models.CharField(max_length=32, default="gpu", help_text="What it is, e.g. gpu.")
    platform = models.CharField(max_length=32, default=NVIDIA, help_text="nvidia, amd or intel.")
    model = models.CharField(max_length=128, blank=True, help_text="Model name as its driver reports it.")
    memory_mib = models.PositiveBigIntegerField(default=0, help_text="Device memory in MiB.")
    driver_version = models.CharField(max_length=64, blank=True, help_text="Version of the driver.")
    health = models.CharField(
        max_length=16,
        choices=DeviceHealth,
        default=DeviceHealth.HEALTHY,
        help_text="Unhealthy devices are not handed out.",
    )
    seen_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When detection last saw it; empty = entered by hand.",
    )
    missing_since = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Detection no longer sees it; it is unhealthy until it is back.",
    )

    class Meta:
        ordering = ["host", "pk"]
        constraints = [
            models.CheckConstraint(
                name="device_health_known", condition=in_list("health", DeviceHealth.values)
            ),
            models.CheckConstraint(
                name="device_platform_lower_case",
                condition=Q(platform=Lower("platform")),
                violation_error_message="A platform is told in lower case.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model or self.kind} {self.uuid[-8:]}"

    def clean(self) -> None:
        """The id is of one device. One that an environment offers stays on its host; platforms are told in lower case.

        Raises ValidationError with fields.
        """
        in_lower_case(self, "platform")
        if self.uuid and not DEVICE_ID.match(self.uuid):
            text = f"Found {shown(self.uuid)}; write the id of one device, without spaces and commas: not a list, not all."
            raise ValidationError({"uuid": text})
        if self.pk is None or self.host_id is None:
            return
        if self.platform == NVIDIA and self.init.exists():
            text = "A device of platform nvidia comes with its driver's own request; take its init out first."
            raise ValidationError({"platform": text})
        offers = self.resource_devices.exclude(environment__engine__host=self.host_id)
        names = sorted(f"{offer.environment}" for offer in offers.select_related("environment__engine"))
        if names:
            raise ValidationError(
                {
                    "host": f"The device is offered by {', '.join(names)} on another host; take it out there first."
                }
            )
