"""The init of devices: written under the host's lock, never while a job holds the device, and read at a job's start."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from django.core.exceptions import ValidationError

from compute_site.core.db import lock
from compute_site.core.models import save_clean
from environments.device_rules import no_file
from environments.history import Author, find, record
from environments.models import (
    NVIDIA,
    Device,
    DeviceInit,
    Environment,
    EnvironmentState,
    InitKind,
    ReservedDevice,
    ResourceDevice,
)
from environments.reservations import lock_host
from environments.rules import WAY_OUT

Entry = tuple[str, str, str]  # kind, name, value


@dataclass(frozen=True, slots=True)
class Needs:
    """What a container gets for the devices that it holds. `files`: device file and its permissions, by the name that it
    has on the host; `groups`: numbers of groups on the host."""

    by_driver: tuple[str, ...] = ()  # UUIDs that the driver's own request hands out
    files: tuple[tuple[str, str], ...] = ()
    groups: tuple[int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def needs_of(uuids: Collection[str]) -> Needs:
    """For a container that holds these devices and no other; the same rows give the same answer."""
    if not uuids:
        return Needs()
    platforms = dict(Device.objects.filter(uuid__in=uuids).values_list("uuid", "platform"))
    others = [uuid for uuid in uuids if platforms.get(uuid) != NVIDIA]
    rows = DeviceInit.objects.filter(device__uuid__in=others).order_by("kind", "name", "pk") if others else ()
    return Needs(
        by_driver=tuple(uuid for uuid in uuids if platforms.get(uuid) == NVIDIA),
        files=_files(row for row in rows if row.kind == InitKind.PATH),
        groups=tuple(sorted({int(row.name) for row in rows if row.kind == InitKind.GROUP})),
        variables={row.name: row.value for row in rows if row.kind == InitKind.VARIABLE},
    )


def _files(rows: Iterable[DeviceInit]) -> tuple[tuple[str, str], ...]:
    """A file that several devices share is there once, with all permissions that they give it."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row.name, set()).update(row.value)
    return tuple(
        (name, "".join(letter for letter in "rw" if letter in found[name])) for name in sorted(found)
    )


def init_of(device: Device) -> list[Entry]:
    """Its entries, in an order of their own."""
    return sorted(DeviceInit.objects.filter(device=device).values_list("kind", "name", "value"))


def write_init(device: Device, entries: Iterable[Entry]) -> None:
    """Make these entries the device's only ones; rows that are right already stay. Needs the host's lock.

    Raises ValidationError with messages alone: what is wrong with an entry, or that a job holds the device.
    """
    wanted = set(entries)
    there = set(init_of(device))
    if wanted == there:
        return
    _check_free(device)
    for kind, name, value in there - wanted:
        DeviceInit.objects.filter(device=device, kind=kind, name=name, value=value).delete()
    for kind, name, value in sorted(wanted - there):
        try:
            save_clean(DeviceInit(device=device, kind=kind, name=name, value=value))
        except ValidationError as error:
            raise ValidationError(error.messages) from error


class DeviceEdit:
    """One edit of a device by hand: made before anything is written, finished before the transaction commits."""

    def __init__(self, device: Device) -> None:
        """Locks host and environments that offer the device, in order, and keeps what they are."""
        lock_host(device.host_id)
        self.device = device
        offers = ResourceDevice.objects.filter(device=device.pk).values("environment")
        self.environments = lock(Environment.objects.filter(pk__in=offers))
        for environment in self.environments:
            find(environment)
        self.before = self._told()

    def finish(self, author: Author) -> None:
        """The edit is in the history of every environment that offers the device. Raises ValidationError with fields when
        a job would lose, or an offer would lack, what makes the device work."""
        if self.before is not None and self._told() != self.before:
            _check_free(self.device)
        _check_init(self.device)
        for environment in self.environments:
            if environment.state != EnvironmentState.RETIRED and no_file(self.device):
                raise ValidationError(f"{environment} offers it: {no_file(self.device)}")
            record(environment, author)

    def _told(self) -> tuple[bool, list[Entry]] | None:
        row = Device.objects.filter(pk=self.device.pk).first()
        return None if row is None else (row.platform == NVIDIA, init_of(row))


def _check_init(device: Device) -> None:
    """Its entries once more, with the lock: a form is checked before it, and another device may have the same by now."""
    for row in DeviceInit.objects.filter(device=device.pk).select_related("device"):
        try:
            row.clean()
        except ValidationError as error:
            raise ValidationError(error.messages) from error


def _check_free(device: Device) -> None:
    if ReservedDevice.objects.filter(device=device, released_at=None).exists():
        text = f"{device} is held by a running job, whose container has its init as it is; {WAY_OUT}."
        raise ValidationError(text)
