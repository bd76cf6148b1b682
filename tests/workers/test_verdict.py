"""From the facts of an exit to one end reason: every row told apart."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from workers.sandbox.docker import ContainerFacts
from workers.sandbox.marker import Marker, parse_marker
from workers.verdict import ExitFacts, decide, exit_facts, memory_kills

MIB = 2**20
BOOT = "11111111-aaaa"
ENDED = Marker(
    status="exited",
    code=0,
    signal=0,
    exec_errno=0,
    deadline=False,
    termed=False,
    stdout_bytes=0,
    stderr_bytes=0,
    stdout_cut=0,
    stderr_cut=0,
    boot_id_start=BOOT,
    boot_id_end=BOOT,
    started_ns=0,
    ended_ns=1,
    user_us=0,
    system_us=0,
    max_rss_kib=0,
)
SIGNALED_9 = replace(ENDED, status="signaled", signal=9)
REFUSED = parse_marker(b'{"v":1,"status":"refused","code":125,"refused":"network"}\n')
SIGNALED_15 = replace(ENDED, status="signaled", signal=15, termed=True)
assert REFUSED is not None


def facts(marker: Marker | None, exit_code: int, *, oom_flag: bool = False, **changes: object) -> ExitFacts:
    """The facts of a container with a limit of 100 MiB that used 10, on the same boot, watched all the time."""
    container = ContainerFacts(
        id="c",
        name="n",
        status=str(changes.pop("status", "exited")),
        exit_code=exit_code,
        oom_killed=oom_flag,
        error="",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        finished_at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        labels={},
        pid=0,
    )
    usage = {"peak_bytes": 10 * MIB, "cpu_ns": 5, "memory_kills": 0} | {
        key: changes.pop(key) for key in ("peak_bytes", "memory_kills") if key in changes
    }
    rest = {"oom_event": False, "boot_id": BOOT, "connection_lost": False} | changes
    return exit_facts(container, marker, memory_limit=100 * MIB, usage=usage, **rest)  # type: ignore[arg-type]


ROWS = [
    # what, facts, our own reason to stop, end reason, exit code
    ("well", facts(ENDED, 0), "", "succeeded", 0),
    ("code", facts(replace(ENDED, code=3), 3), "", "exit_nonzero", 3),
    (
        "no program",
        facts(replace(ENDED, status="exec_failed", code=127, exec_errno=2), 127),
        "",
        "command_not_found",
        127,
    ),
    ("refused by the launcher", facts(REFUSED, 125), "", "cannot_start", None),
    ("refused, and to be stopped", facts(REFUSED, 125), "time_limit", "cannot_start", None),
    ("a refusal that is a scribble", facts(REFUSED, 137), "", "killed", 137),
    ("kills itself", facts(SIGNALED_9, 137), "", "killed", 137),
    ("9 and the flag", facts(SIGNALED_9, 137, oom_flag=True), "", "out_of_memory", 137),
    ("9 and the event", facts(SIGNALED_9, 137, oom_event=True), "", "out_of_memory", 137),
    ("9 and the peak", facts(SIGNALED_9, 137, peak_bytes=99 * MIB), "", "out_of_memory", 137),
    ("9 below the peak", facts(SIGNALED_9, 137, peak_bytes=97 * MIB), "", "killed", 137),
    (
        "9 of ours at the peak",
        facts(replace(SIGNALED_9, termed=True), 137, peak_bytes=99 * MIB),
        "time_limit",
        "time_limit",
        137,
    ),
    ("killed itself before our stop", facts(SIGNALED_9, 137), "time_limit", "killed", 137),
    ("for memory before our stop", facts(SIGNALED_9, 137, oom_flag=True), "time_limit", "out_of_memory", 137),
    ("a child for memory", facts(ENDED, 0, oom_flag=True), "", "succeeded", 0),
    ("a child for memory, 1", facts(replace(ENDED, code=1), 1, oom_flag=True), "", "exit_nonzero", 1),
    ("another signal", facts(replace(SIGNALED_9, signal=11), 139, oom_flag=True), "", "killed", 139),
    ("deadline of the launcher", facts(replace(SIGNALED_9, deadline=True), 124), "", "time_limit", 124),
    ("cancelled, obeys", facts(replace(ENDED, termed=True), 0), "cancelled", "cancelled", 0),
    ("cancelled, had ended", facts(ENDED, 0), "cancelled", "succeeded", 0),
    ("TERM of a stranger", facts(SIGNALED_15, 143), "", "killed", 143),
    ("TERM of an engine that went", facts(SIGNALED_15, 143, connection_lost=True), "", "engine_lost", None),
    (
        "obeyed an engine that went",
        facts(replace(ENDED, termed=True), 0, connection_lost=True),
        "",
        "engine_lost",
        None,
    ),
    (
        "TERM of ours, engine went",
        facts(SIGNALED_15, 143, connection_lost=True),
        "cancelled",
        "cancelled",
        143,
    ),
    ("no TERM, engine went", facts(replace(ENDED, code=3), 3, connection_lost=True), "", "exit_nonzero", 3),
    ("no marker", facts(None, 137), "", "killed", 137),
    ("no marker, for memory", facts(None, 137, oom_flag=True), "", "out_of_memory", 137),
    (
        "a child for memory, then the engine",
        facts(None, 137, oom_flag=True, connection_lost=True),
        "",
        "engine_lost",
        None,
    ),
    ("no marker, of ours", facts(None, 137), "time_limit", "time_limit", 137),
    ("no marker, engine went", facts(None, 137, connection_lost=True), "", "engine_lost", None),
    ("no marker, exit 0, engine went", facts(None, 0, connection_lost=True), "", "engine_lost", None),
    ("no marker, exit 0", facts(None, 0), "", "killed", 0),
    ("vanished", facts(None, 0, status="gone"), "", "engine_lost", None),
    ("another boot at the end", facts(replace(ENDED, boot_id_end="2"), 0), "", "engine_lost", None),
    ("another boot now", facts(ENDED, 0, boot_id="2"), "", "engine_lost", None),
    ("boot not to be known", facts(ENDED, 0, boot_id=""), "", "succeeded", 0),
    ("scribble", facts(ENDED, 3), "", "killed", 3),
]


@pytest.mark.parametrize(
    ("found", "stopped", "reason", "code"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_each_end(found: ExitFacts, stopped: str, reason: str, code: int | None) -> None:
    verdict = decide(found, stopped)
    assert (verdict.reason, verdict.exit_code) == (reason, code)
    assert decide(ExitFacts(**found.as_json()), stopped) == verdict  # as it is read back from the row


@pytest.mark.parametrize(
    ("found", "kills"),
    [
        (facts(ENDED, 0), 0),
        (facts(ENDED, 0, memory_kills=3), 3),
        (facts(ENDED, 0, oom_flag=True), 1),
        (facts(ENDED, 0, oom_event=True, memory_kills=None), 1),
    ],
)
def test_kills_for_memory_are_counted(found: ExitFacts, kills: int) -> None:
    assert memory_kills(found) == kills
