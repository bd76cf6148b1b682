"""NVML for machines without a GPU: the functions of pynvml that are used here, answering from a description.

The description is JSON: {"driver": "570.1", "devices": [{"uuid": "GPU-…", "name": "…", "memory_mib": 81559}, …]}. The
order is the index. `"error"` at the top makes NVML fail to start; in a device it makes this one not answer.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What every function raises when it fails, as in pynvml."""


class DescribedNVML:
    """A library that can be passed in place of pynvml."""

    NVMLError = NVMLError

    def __init__(self, description: dict[str, Any]) -> None:
        self._description = description
        self._started = 0

    @classmethod
    def from_file(cls, path: str) -> "DescribedNVML":
        """Raises OSError, and ValueError for what is no description."""
        description = json.loads(Path(path).read_text())
        if not isinstance(description, dict) or not isinstance(description.get("devices"), list):
            raise ValueError(f"{path} describes no devices")
        return cls(description)

    def nvmlInit(self) -> None:
        if "error" in self._description:
            raise NVMLError(self._description["error"])
        self._started += 1

    def nvmlShutdown(self) -> None:
        self._answer()
        self._started -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return str(self._answer()["driver"])

    def nvmlDeviceGetCount(self) -> int:
        return len(self._answer()["devices"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        devices = self._answer()["devices"]
        if not 0 <= index < len(devices):
            raise NVMLError("Invalid Argument")
        if "error" in devices[index]:
            raise NVMLError(devices[index]["error"])
        return devices[index]

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return str(self._device(handle)["uuid"])

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return str(self._device(handle)["name"])

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        if self._device(handle).get("memory_mib") is None:
            raise NVMLError("Not Supported")
        return SimpleNamespace(total=handle["memory_mib"] * 1024 * 1024)

    def _answer(self) -> dict[str, Any]:
        if self._started < 1:
            raise NVMLError("Uninitialized")
        return self._description

    def _device(self, handle: Any) -> dict[str, Any]:
        self._answer()
        device: dict[str, Any] = handle
        return device
