"""What detection found of a host's devices, written into their rows. A device is known by its UUID and by nothing else."""

from collections.abc import Iterable
from typing import Protocol

from django.db import transaction
from django.db.models import F

from compute_site.core.db import ClockTimestamp
from compute_site.core.models import save_clean
from environments.models import NVIDIA, Device, DeviceHealth, Host
from environments.reservations import lock_host


class Facts(Protocol):
    """One device as its driver reports it; memory in MiB."""

    @property
    def uuid(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def memory_mib(self) -> int: ...
    @property
    def driver_version(self) -> str: ...


def record_devices(host: Host, facts: Iterable[Facts], platform: str = NVIDIA) -> list[str]:
    """Write all devices of one platform that were found on the host; returns warnings.

    New ones are healthy. One that is not found becomes unhealthy: it is not handed out, whoever holds it keeps it. One
    that is back becomes healthy again, unless an operator had called it unhealthy. Other platforms stay as they are.
    """
    found = {fact.uuid: fact for fact in facts}
    warnings = []
    with transaction.atomic():
        lock_host(host.pk)
        there = {device.uuid: device for device in Device.objects.filter(uuid__in=found)}
        for uuid, fact in found.items():
            device = there.get(uuid) or Device(host=host, uuid=uuid, platform=platform)
            if device.host_id != host.pk:
                warnings.append(
                    f"{uuid} was found here, but it is a device of host {device.host}; it stays there."
                )
                continue
            _write(device, fact)
        missing = Device.objects.filter(host=host, platform=platform, health=DeviceHealth.HEALTHY)
        missing = missing.exclude(uuid__in=found)
        warnings += [
            f"{device.uuid} ({device.model or device.kind}) is not there any more: it is not handed out until it is back."
            for device in missing
        ]
        missing.update(
            health=DeviceHealth.UNHEALTHY, missing_since=ClockTimestamp(), version=F("version") + 1
        )
    return warnings


def _write(device: Device, fact: Facts) -> None:
    """The row as found; its version grows only when something that operators see has changed."""
    before = (device.model, device.memory_mib, device.driver_version, device.health)
    device.model, device.memory_mib, device.driver_version = fact.model, fact.memory_mib, fact.driver_version
    if device.missing_since is not None:
        device.health, device.missing_since = DeviceHealth.HEALTHY, None
    if device.pk is None:
        save_clean(device)
    elif before != (device.model, device.memory_mib, device.driver_version, device.health):
        device.version += 1
        save_clean(device)
    Device.objects.filter(pk=device.pk).update(seen_at=ClockTimestamp())
