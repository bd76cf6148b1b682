"""From the facts of an exit to one end reason. Pure: no database, no Docker, no clock."""

import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from workers.sandbox.docker import ContainerFacts
from workers.sandbox.marker import Marker

NEAR_LIMIT = 0.98  # of the memory limit: the OOM flag is sometimes missing, the peak is not


@dataclass(frozen=True, slots=True)
class ExitFacts:
    """All that is known when a container has ended. Stored on the attempt as JSON, and read back to decide.

    `connection_lost`: the engine's event stream broke while it ran (asked only where the end may not be the job's
    own). `boot_id`: of the engine's host now, empty when it cannot be known from here. Sizes in bytes, `cpu_ns` in nanoseconds.
    """

    status: str
    exit_code: int | None
    error: str
    oom_flag: bool
    oom_event: bool
    started_at: str | None
    finished_at: str | None
    marker: dict[str, Any] | None
    boot_id: str
    connection_lost: bool
    peak_bytes: int | None
    cpu_ns: int | None
    memory_kills: int | None
    memory_limit: int

    def as_json(self) -> dict[str, Any]:
        """The form stored on the attempt."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An end reason with its words and the exit code that the client sees."""

    reason: str
    detail: str
    exit_code: int | None


def exit_facts(
    container: ContainerFacts,
    marker: Marker | None,
    *,
    memory_limit: int,
    usage: Mapping[str, int | None],
    **rest: Any,
) -> ExitFacts:
    """Put the facts together. A marker that does not go with Docker's exit code is somebody's scribble: dropped."""
    if marker is not None and not marker.agrees(container.exit_code):
        marker = None
    return ExitFacts(
        status=container.status,
        exit_code=container.exit_code,
        error=container.error,
        oom_flag=container.oom_killed,
        started_at=_text(container.started_at),
        finished_at=_text(container.finished_at),
        marker=asdict(marker) if marker else None,
        memory_limit=memory_limit,
        peak_bytes=usage.get("peak_bytes"),
        cpu_ns=usage.get("cpu_ns"),
        memory_kills=usage.get("memory_kills"),
        **rest,
    )


def decide(facts: ExitFacts, stop_reason: str) -> Verdict:
    """The end reason of a container that ran. `stop_reason` is what we wrote before our first signal, or empty."""
    marker = facts.marker
    if marker is None:
        return _without_marker(facts, stop_reason)
    if _other_boot(facts):
        return Verdict("engine_lost", "the host restarted while the job ran", None)
    if marker["status"] == "refused":
        return Verdict("cannot_start", f"the launcher refused to run the job: {marker['refused']}", None)
    if marker["status"] == "exec_failed":
        return Verdict("command_not_found", _errno_text(marker["exec_errno"]), _code(marker))
    if stop_reason and marker["termed"]:  # our TERM comes first: without it the stop was asked too late
        return Verdict(stop_reason, "", _code(marker))
    if marker["deadline"]:
        return Verdict("time_limit", "", _code(marker))
    if marker["termed"] and facts.connection_lost:
        return Verdict("engine_lost", "the engine or its host stopped the container when it went away", None)
    if marker["status"] == "signaled":
        return _signaled(facts, marker["signal"])
    if marker["code"] != 0:
        return Verdict("exit_nonzero", f"exit code {marker['code']}", marker["code"])
    return Verdict("succeeded", "", 0)


def _without_marker(facts: ExitFacts, stop_reason: str) -> Verdict:
    """The launcher did not come to its end: killed by us, for memory, by the host's or engine's end, or by a stranger."""
    if stop_reason:
        return Verdict(stop_reason, "", facts.exit_code)
    if (
        facts.connection_lost or facts.status == "gone"
    ):  # before the flag, which a child may have set long ago
        return Verdict("engine_lost", "the engine or its host went away while the job ran", None)
    if facts.oom_flag or facts.oom_event:
        return Verdict("out_of_memory", "", facts.exit_code)
    return Verdict("killed", "the container was killed from outside the job", facts.exit_code)


def _signaled(facts: ExitFacts, number: int) -> Verdict:
    """Signal 9 with signs of memory pressure is the kernel's; any other signal, or no sign, is not."""
    near = facts.peak_bytes is not None and facts.peak_bytes >= NEAR_LIMIT * facts.memory_limit
    if number == signal.SIGKILL and (facts.oom_flag or facts.oom_event or near):
        return Verdict("out_of_memory", f"limit {facts.memory_limit // 2**20} MiB", 128 + number)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return Verdict("killed", f"ended by {name}", 128 + number)


def _other_boot(facts: ExitFacts) -> bool:
    """A host that restarted can report exit 0: start, end and now must be the same boot, where they can be known."""
    assert facts.marker is not None
    known = {facts.marker["boot_id_start"], facts.marker["boot_id_end"], facts.boot_id} - {""}
    return len(known) > 1


def memory_kills(facts: ExitFacts) -> int:
    """How many processes of the job were killed for memory, at least; 0 when there is no sign of any."""
    if facts.memory_kills:
        return facts.memory_kills
    return int(facts.oom_flag or facts.oom_event)


def _code(marker: Mapping[str, Any]) -> int:
    if marker["deadline"]:
        return 124
    return 128 + int(marker["signal"]) if marker["status"] == "signaled" else int(marker["code"])


def _errno_text(number: int) -> str:
    return os.strerror(number)


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
