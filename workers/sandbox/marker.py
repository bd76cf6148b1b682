"""The launcher's last word: how the main process ended, written after everything else in the container was dead."""

import json
from dataclasses import dataclass
from typing import Any

LARGEST = 4096  # bytes; the launcher writes about 500


@dataclass(frozen=True, slots=True)
class Marker:
    """`status` is exited, signaled, exec_failed, or refused: by the launcher, for the reason `refused`, and the job never
    ran. Times in microseconds of CPU, sizes in bytes unless named.

    While the container lives, the job can write here too: only a marker read after its death counts, and only one
    that `agrees` with the exit code that the engine saw.
    """

    status: str
    code: int
    signal: int
    exec_errno: int
    deadline: bool
    termed: bool
    stdout_bytes: int
    stderr_bytes: int
    stdout_cut: int
    stderr_cut: int
    boot_id_start: str
    boot_id_end: str
    started_ns: int
    ended_ns: int
    user_us: int
    system_us: int
    max_rss_kib: int
    refused: str = ""

    def agrees(self, exit_code: int | None) -> bool:
        """Whether the launcher's own exit code (as the engine reports it) is the one that goes with this marker."""
        if self.deadline:
            return exit_code == 124
        if self.status == "signaled":
            return exit_code == 128 + self.signal
        return exit_code == self.code or (self.status == "exec_failed" and exit_code in (126, 127))


def parse_marker(data: bytes) -> Marker | None:
    """The marker in `data`, or None when it is empty or not one (a job's scribble, a launcher that was killed)."""
    if not data or len(data) > LARGEST:
        return None
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("v") != 1:
        return None
    if found.get("status") not in ("exited", "signaled", "exec_failed", "refused"):
        return None
    values: dict[str, Any] = {}
    for name, kind in Marker.__annotations__.items():
        value = found.get(name, kind())
        if type(value) is not kind or (kind is int and not -(2**31) <= value < 2**63):
            return None
        values[name] = value[:100] if isinstance(value, str) else value
    return Marker(**values)
