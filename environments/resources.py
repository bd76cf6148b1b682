"""Which columns a resource and its free part have, and how their rows are written: the same for all who write them."""

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.db.models import ProtectedError, RestrictedError

from compute_site.core.models import save_changed, save_clean
from environments.models import Device, FreeResource, Resource, ResourceDevice, ResourceKind, Sharing

AMOUNTS = ("total", "min", "max")


def usual_sharing(kind: str) -> Sharing:
    """How a resource of this kind is shared unless somebody says otherwise."""
    return Sharing.SHARED_EXCLUSIVE if kind == ResourceKind.DEVICE else Sharing.EXCLUSIVE


def write_resource(
    row: Resource,
    *,
    slug: str,
    kind: str,
    total: int,
    min: int = 0,
    max: int | None = None,
    sharing: str = "",
) -> Resource:
    """A resource, new or not, as told: cores, MiB, devices or counts; `max` None = the total, no `sharing` = the usual.

    Saved only if anything differs. Raises ValidationError with fields.
    """
    named = {"slug": slug, "kind": kind, "sharing": sharing or usual_sharing(kind)}
    return save_changed(row, {**named, **_amounts(total, min, max)})


def drop_resource(row: Resource) -> None:
    """One that a job once had stays as a row of nothing, since old reservations refer to it; whether a job has it now is
    for `check_environment`. Raises ValidationError with fields."""
    row.resource_devices.all().delete()
    row.free_parts.all().delete()
    row.prices.all().delete()
    try:
        row.delete()
    except RestrictedError as error:
        named = "; ".join(sorted(f"constraint {one}" for one in error.restricted_objects))
        raise ValidationError(f"It is the target of {named}: remove that first.") from error
    except ProtectedError:
        write_resource(row, slug=row.slug, kind=row.kind, total=0, sharing=row.sharing)


def write_free_part(row: FreeResource, *, total: int, min: int = 0, max: int | None = None) -> FreeResource:
    """The free tier's part of a resource, in the same way."""
    return save_changed(row, _amounts(total, min, max))


def _amounts(total: int, least: int, most: int | None) -> dict[str, int]:
    return dict(zip(AMOUNTS, (total, least, total if most is None else most), strict=True))


def set_devices(resource: Resource, devices: Sequence[Device]) -> None:
    """Exactly these devices are in the resource; new ones come in this order. Raises ValidationError with messages alone."""
    rows = ResourceDevice.objects.filter(resource=resource)
    rows.exclude(device__in=devices).delete()
    there = set(rows.values_list("device_id", flat=True))
    for device in devices:
        if device.pk not in there:
            add_device(resource, device)


def add_device(resource: Resource, device: Device) -> None:
    """One device more in a resource of kind device. Raises ValidationError with messages alone: the field is known."""
    try:
        save_clean(ResourceDevice(resource=resource, environment=resource.environment, device=device))
    except ValidationError as error:
        raise ValidationError(error.messages) from error
