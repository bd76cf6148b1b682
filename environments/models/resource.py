"""What an environment offers of one kind."""

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from compute_site.core.db import in_list
from compute_site.core.models import StrictNumbers
from compute_site.core.numbers import shown
from environments.models.environment import Environment
from environments.models.host import SLUG, Device


class ResourceKind(models.TextChoices):
    CPU = "cpu", "CPU cores"
    RAM = "ram", "memory (MiB)"
    DISK = "disk", "disk (MiB)"
    DEVICE = "device", "devices"
    COUNTER = "counter", "counter"


class Sharing(models.TextChoices):
    EXCLUSIVE = "exclusive", "exclusive to this environment"
    SHARED_EXCLUSIVE = "shared_exclusive", "shared between environments, held by one job at a time"


SLUG_TWICE = "This environment already has a resource with this slug."
KIND_TWICE = "An environment has at most one cpu, one ram and one disk resource."
OF_ANOTHER_KIND = "Found {}, which contradicts {}."
PHYSICAL = (ResourceKind.CPU, ResourceKind.RAM, ResourceKind.DISK)


def amount_errors(offer: models.Model) -> dict[str, str]:
    """What is wrong with min, max and total of a resource or its free part, by field."""
    least, most, total = (getattr(offer, name) for name in ("min", "max", "total"))
    if any(type(value) is not int or value < 0 for value in (least, most, total)):
        return {}  # the field itself was refused already
    errors = {}
    if most > total:
        errors["max"] = f"{most} is more than the total of {total}; lower it or raise the total."
    if least > most:
        errors["min"] = f"{least} is more than the max of {most}; lower it or raise the max."
    return errors


class Resource(StrictNumbers):
    """What an environment offers of one kind. Units: whole cores, MiB, number of devices, counts."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="resources")
    slug = models.CharField(
        max_length=63, validators=[SLUG], help_text="Name that jobs ask for, e.g. cpu, ram, disk, gpu."
    )
    kind = models.CharField(
        max_length=16,
        choices=ResourceKind,
        help_text="cpu in cores, ram and disk in MiB, device and counter as numbers.",
    )
    total = models.PositiveBigIntegerField(help_text="What the environment may hand out in all.")
    min = models.PositiveBigIntegerField(default=0, help_text="Least a job gets, also when it does not ask.")
    max = models.PositiveBigIntegerField(blank=True, help_text="Most one job may ask; empty = total.")
    sharing = models.CharField(
        max_length=20,
        choices=Sharing,
        default=Sharing.EXCLUSIVE,
        help_text="Devices are usually shared-exclusive.",
    )
    devices = models.ManyToManyField(Device, through="ResourceDevice", related_name="resources", blank=True)

    class Meta:
        ordering = ["environment", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["environment", "slug"],
                name="resource_slug_once_per_environment",
                violation_error_message=SLUG_TWICE,
            ),
            models.UniqueConstraint(
                fields=["environment", "kind"],
                condition=Q(kind__in=["cpu", "ram", "disk"]),
                name="resource_cpu_ram_disk_once_per_environment",
                violation_error_message=KIND_TWICE,
            ),
            models.CheckConstraint(
                name="resource_kind_known", condition=in_list("kind", ResourceKind.values)
            ),
            models.CheckConstraint(
                name="resource_sharing_known", condition=in_list("sharing", Sharing.values)
            ),
            models.CheckConstraint(
                name="resource_min_max_total_ordered",
                condition=Q(min__lte=F("max"), max__lte=F("total")),
                violation_error_message="0 <= min <= max <= total must hold.",
            ),
            models.CheckConstraint(
                name="resource_cpu_ram_disk_exclusive",
                condition=~Q(kind__in=["cpu", "ram", "disk"]) | Q(sharing=Sharing.EXCLUSIVE),
                violation_error_message="cpu, ram and disk are exclusive to their environment.",
            ),
            models.CheckConstraint(
                name="resource_disk_positive",
                condition=~Q(kind="disk") | Q(total__gt=0),
                violation_error_message="An environment needs disk: total must be greater than 0.",
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        """0 <= min <= max <= total, disk is there, cpu/ram/disk are exclusive, there once and nothing else's name, the kind
        stays.

        An empty `max` becomes `total`. Raises ValidationError with fields.
        """
        if self.max is None:
            self.max = self.total
        errors = amount_errors(self)
        if self.kind == ResourceKind.DISK and self.total == 0:
            errors["total"] = "Found 0; an environment needs disk: enter MiB greater than 0."
        if self.kind in PHYSICAL and self.sharing != Sharing.EXCLUSIVE:
            errors["sharing"] = (
                f"{self.kind} is exclusive to its environment; only devices and counters can be shared."
            )
        if self.kind in PHYSICAL and self._twins().exists():
            errors["kind"] = KIND_TWICE
        if self.slug in PHYSICAL and self.kind != self.slug:  # a file goes by the name
            errors["kind"] = OF_ANOTHER_KIND.format(shown(self.kind), f"the id {self.slug}")
        if self.pk is not None and not Resource.objects.filter(pk=self.pk, kind=self.kind).exists():
            errors["kind"] = "The kind of a resource cannot change; remove this resource and add another."
        if errors:
            raise ValidationError(errors)

    def _twins(self) -> "models.QuerySet[Resource]":
        return Resource.objects.filter(environment=self.environment_id, kind=self.kind).exclude(pk=self.pk)


class ResourceDevice(models.Model):
    """One device in one resource; the environment is repeated so that PostgreSQL can refuse it twice in one."""

    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="resource_devices")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="+")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="resource_devices")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["environment", "device"],
                name="device_once_per_environment",
                violation_error_message="This device is already in a resource of this environment.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.resource}: {self.device}"

    def clean(self) -> None:
        """The device stands on the environment's host, in one resource, for devices. Raises ValidationError with fields."""
        resource = self.resource
        if resource.environment_id != self.environment_id:
            raise ValidationError({"environment": "The resource belongs to another environment."})
        if resource.kind != ResourceKind.DEVICE:
            raise ValidationError(
                {"resource": f"{resource.slug} is of kind {resource.kind}; devices belong to kind device."}
            )
        others = ResourceDevice.objects.filter(environment=self.environment_id, device=self.device_id)
        twice = others.exclude(pk=self.pk).select_related("resource").first()
        if twice is not None:
            raise ValidationError(
                {
                    "device": f"{self.device.uuid} is in {twice.resource} of this environment already;"
                    " a device is in one of them."
                }
            )
        if self.device.host_id != self.environment.engine.host_id:
            raise ValidationError(
                {
                    "device": f"{self.device} is on host {self.device.host}, the environment on {self.environment.engine.host}."
                }
            )
