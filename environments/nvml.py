"""The one module that speaks to NVIDIA's management library (NVML). It knows no rows and no Django."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from compute_site.core.errors import SiteError

log = logging.getLogger(__name__)
MIB = 1024 * 1024


class NVMLUnavailable(SiteError):
    """NVML does not answer on this machine, so nothing is known about its devices: that is not "there are none"."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One NVIDIA device as its driver reports it. Its index is left out: it changes, the UUID does not."""

    uuid: str
    model: str
    memory_mib: int
    driver_version: str


def detect_devices(library: Any = pynvml) -> list[DeviceFacts]:
    """Every NVIDIA device of this machine that answers, by UUID; an empty list means that the driver has none.

    A device that is listed but does not answer (lost from the bus) is left out, with a line in the log. `library` is
    pynvml or whatever has its functions. Raises NVMLUnavailable when the library or the driver does not answer.
    """
    with _open(library):
        try:
            driver = _text(library.nvmlSystemGetDriverVersion())
            count = library.nvmlDeviceGetCount()
        except library.NVMLError as error:
            raise _unavailable(error) from error
        found = [_device(library, index, driver) for index in range(count)]
    return sorted((facts for facts in found if facts is not None), key=lambda facts: facts.uuid)


@contextmanager
def _open(library: Any) -> Iterator[None]:
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise _unavailable(error) from error
    try:
        yield
    finally:
        with suppress(library.NVMLError):
            library.nvmlShutdown()


def _device(library: Any, index: int, driver: str) -> DeviceFacts | None:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(library.nvmlDeviceGetUUID(handle))
        model = _text(library.nvmlDeviceGetName(handle))
    except library.NVMLError as error:
        log.warning("NVML: the device at index %d does not answer: %s", index, error)
        return None
    memory = 0  # a device that shares the machine's memory has none of its own
    with suppress(library.NVMLError):
        memory = library.nvmlDeviceGetMemoryInfo(handle).total // MIB
    return DeviceFacts(uuid, model, memory, driver)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _unavailable(error: Exception) -> NVMLUnavailable:
    return NVMLUnavailable(
        f"NVIDIA devices were not looked for: NVML does not answer here ({error}). If there are any, repair the driver or"
        " enter them by hand in the admin."
    )
