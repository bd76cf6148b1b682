"""Devices of a resource as a file writes them: a request to Docker, of which only the ids are taken."""

import re
from typing import Protocol

from compute_site.core.numbers import shown
from environments.importing.reading import Reading
from environments.importing.wanted import WantedDevice

MEMORY = re.compile(r"^(\d{1,12})\s*MiB$")


class Described(Protocol):
    """Where each key of a resource is to be read."""

    def at(self, key: str) -> Reading: ...


def read_devices(holder: Reading, entry: Described) -> tuple[WantedDevice, ...]:
    """The devices that `init` of the holder names. What would weaken the sandbox is refused by its path."""
    init = holder.object("init")
    if init is None:
        return ()
    _refuse_advanced(init)
    requests = init.objects("deviceRequests") if isinstance(init.value("deviceRequests"), list) else []
    single = None if requests else init.object("deviceRequests")
    requests += [single] if single is not None else []
    ids = [found for request in requests for found in _ids(request)]
    described = _description(entry) if ids else ("", "", 0, "")
    devices: dict[str, WantedDevice] = {}
    for path, uuid in ids:
        if uuid in devices:
            init.report.refuse(path, f"{uuid} is named twice; keep one.")
        devices[uuid] = WantedDevice(uuid, *described, path)
    return tuple(devices.values())


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


def _refuse_advanced(init: Reading) -> None:
    """Settings of Docker that an operator may give to a container there: here the sandbox decides alone."""
    advanced = init.object("advanced")
    for key in advanced.names() if advanced is not None else ():
        assert advanced is not None
        if key == "ShmSize":
            advanced.drop(key, "/dev/shm is part of the job's own memory.")
        elif key in advanced:
            advanced.report.refuse(
                advanced.at(key),
                "No container gets settings of its own here, they would open the sandbox; take it out.",
            )


def _description(entry: Described) -> tuple[str, str, int, str]:
    """Platform, model, memory in MiB and driver as told; they count only until the device is detected."""
    memory = entry.at("memoryTotal").text("memoryTotal")
    match = MEMORY.match(memory)
    if memory and match is None:
        where = entry.at("memoryTotal")
        where.report.note(where.at("memoryTotal"), f"{shown(memory)} is no size in MiB, ignored.")
    return (
        entry.at("platform").text("platform", "nvidia"),
        entry.at("description").text("description")[:128],
        int(match[1]) if match else 0,
        entry.at("driverVersion").text("driverVersion")[:64],
    )
