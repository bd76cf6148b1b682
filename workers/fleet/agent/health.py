"""What a heartbeat tells of the agent's machine: its NVIDIA devices, and what is wrong with them."""

import logging
from dataclasses import asdict
from typing import Any

from environments import nvml

log = logging.getLogger("agent")

TEXT = 200  # characters of a word of the driver's: the site takes no longer ones


class Health:
    """Looks at each heartbeat; remembers what it has seen since the agent started. `library`: in place of pynvml."""

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._seen: dict[str, str] = {}  # model by UUID

    def told(self) -> dict[str, Any]:
        """`devices`, and `health` by what it is about. A machine without a GPU has none; never raises.

        Where NVML does not answer, nothing is known: `devices` is empty, and `health` says why.
        """
        try:
            found = nvml.detect_devices(self._library) if self._library else nvml.detect_devices()
        except nvml.NVMLUnavailable as error:
            return {"devices": [], "health": {"nvml": _clean(str(error))}}
        except Exception as error:  # a sign of life depends on no driver
            log.exception("the devices of this machine were not looked for")
            return {"devices": [], "health": {"nvml": _clean(f"{type(error).__name__}: {error}")}}
        devices = [
            {
                name: _clean(value) if isinstance(value, str) else value
                for name, value in asdict(facts).items()
            }
            for facts in found
        ]
        there = {device["uuid"]: device["model"] for device in devices}
        self._seen |= there
        gone = {uuid: model for uuid, model in self._seen.items() if uuid not in there}
        return {"devices": devices, "health": {uuid: f"{model} has vanished" for uuid, model in gone.items()}}


def _clean(text: str) -> str:
    return text.replace("\0", "")[:TEXT]
