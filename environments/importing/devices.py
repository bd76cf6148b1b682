"""Devices of a resource as a file writes them: ids of a request to Docker, and of others what a container needs."""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from compute_site.core.numbers import shown
from environments.importing.reading import Reading, Report
from environments.importing.wanted import InitEntry, WantedDevice, WantedEngine
from environments.models import NVIDIA, InitKind
from environments.models.device_init import PERMISSIONS, SHARED, init_error

MEMORY = re.compile(r"^(\d{1,12})\s*MiB$")
# What a file may say of a container by the key that we take it from; the kind of our entry.
TAKEN = {"Devices": InitKind.PATH, "GroupAdd": InitKind.GROUP}
OTHER_PLATFORM = "other"


class Described(Protocol):
    """Where each key of a resource is to be read."""

    def at(self, key: str) -> Reading: ...


def read_devices(holder: Reading, entry: Described) -> tuple[WantedDevice, ...]:
    """The devices that `init` of the holder names. What would weaken the sandbox is refused by its path.

    `advanced` is what every device of the resource needs; without ids it is one device, known by its device file.
    """
    init = holder.object("init")
    if init is None:
        return ()
    needs = _advanced(init)
    requests = init.objects("deviceRequests") if isinstance(init.value("deviceRequests"), list) else []
    single = None if requests else init.object("deviceRequests")
    requests += [single] if single is not None else []
    found = [(path, uuid, needs) for request in requests for path, uuid in _ids(request)]
    own = init.objects("devices")
    found += [(each.at("id"), each.text("id"), _own(each)) for each in own]
    if not found and needs and (files := [name for kind, name, _ in needs if kind == InitKind.PATH]):
        found = [
            (
                init.at("advanced.Devices"),
                next((name for name in files if name not in SHARED), files[0]),
                needs,
            )
        ]
    described = _description(entry, NVIDIA if requests else OTHER_PLATFORM) if found else ("", "", 0, "")
    devices: dict[str, WantedDevice] = {}
    for path, uuid, entries in found:
        if not uuid or uuid in devices:
            text = f"{uuid} is named twice; keep one." if uuid else "Found no id; every device has one."
            init.report.refuse(path, text)
        devices[uuid] = WantedDevice(uuid, *described, path, entries)
    return tuple(devices.values())


def refuse_contradictions(engines: Iterable[WantedEngine], report: Report) -> None:
    """A device that several environments offer needs the same for each of them."""
    told: dict[tuple[str, str], WantedDevice] = {}
    for engine in engines:
        for device in _told_of(engine):
            place = (
                engine.path if device.uuid.startswith("/dev/") else ""
            )  # a device file is of its host alone
            first = told.setdefault((place, device.uuid), device)
            if first.init != device.init:
                text = f"{device.uuid} needs something else at {first.path}; make both the same, or leave it out here."
                report.refuse(device.path, text)


def _told_of(engine: WantedEngine) -> Iterator[WantedDevice]:
    for environment in engine.environments:
        for resource in environment.resources:
            yield from (device for device in resource.devices if device.init is not None)


def _ids(request: Reading) -> list[tuple[str, str]]:
    driver = request.text("Driver", "nvidia")
    if driver != "nvidia":
        request.report.refuse(
            request.at("Driver"), f"Found {shown(driver)}; only nvidia is handed out by id."
        )
    request.value("Capabilities")  # always the same here
    request.drop("Count", "devices are handed out by id.")
    request.drop("Options", "no options are passed to the driver.")
    return request.texts("DeviceIDs")


def _advanced(init: Reading) -> frozenset[InitEntry] | None:
    """Settings of Docker that an operator may give to a container there: only device files and groups, given by number,
    are taken over; for the rest the sandbox decides alone. None = it says nothing of them."""
    advanced = init.object("advanced")
    if advanced is None:
        return None
    for key in advanced.names():
        if key == "ShmSize":
            advanced.drop(key, "/dev/shm is part of the job's own memory.")
        elif key not in TAKEN and advanced.value(key) not in (None, {}, []):
            advanced.report.refuse(
                advanced.at(key),
                "No container gets settings of its own here, they would open the sandbox; take it out.",
            )
    return _entries(advanced) or None


def _own(device: Reading) -> frozenset[InitEntry]:
    """The form of our export: for each device its own."""
    entries = _entries(device)
    variables = device.object("Env")
    for name in variables.names() if variables is not None else ():
        assert variables is not None
        entries |= _checked(variables, variables.at(name), (InitKind.VARIABLE, name, variables.text(name)))
    return entries


def _entries(holder: Reading) -> frozenset[InitEntry]:
    found: frozenset[InitEntry] = frozenset()
    for key, kind in TAKEN.items():
        for path, item in holder.items(key):
            text = str(item) if kind == InitKind.GROUP and type(item) is int else item
            if not isinstance(text, str):
                holder.report.refuse(path, f"Found {shown(item)}; text belongs here.")
                continue
            name, colon, value = text.rpartition(":") if kind == InitKind.PATH else ("", "", "")
            entry = (kind, name, value) if colon and value.isalpha() and len(value) < 4 else (kind, text, "")
            found |= _checked(holder, path, entry)
    return found


def _checked(holder: Reading, path: str, entry: InitEntry) -> frozenset[InitEntry]:
    kind, name, value = entry
    value = value or (PERMISSIONS[0] if kind == InitKind.PATH else "")
    if wrong := init_error(kind, name, value):
        holder.report.refuse(path, wrong[1])
    return frozenset({(str(kind), name, value)})


def _description(entry: Described, platform: str) -> tuple[str, str, int, str]:
    """Platform, model, memory in MiB and driver as told; they count only until the device is detected."""
    memory = entry.at("memoryTotal").text("memoryTotal")
    match = MEMORY.match(memory)
    if memory and match is None:
        where = entry.at("memoryTotal")
        where.report.note(where.at("memoryTotal"), f"{shown(memory)} is no size in MiB, ignored.")
    return (
        entry.at("platform").text("platform", platform),
        entry.at("description").text("description")[:128],
        int(match[1]) if match else 0,
        entry.at("driverVersion").text("driverVersion")[:64],
    )
