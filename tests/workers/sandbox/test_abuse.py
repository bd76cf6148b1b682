"""What a hostile program reaches under the full profile, and what its host and neighbour notice of it: nothing."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.workers.sandbox.conftest import PROGRAMS, Maker
from workers.sandbox import cgroup

pytestmark = pytest.mark.engine

MIB = 2**20
# Whether these are refused is up to the engine's own seccomp list, which newer engines have made stricter.
LEFT_TO_THE_ENGINE = {"socket vsock", "socket alg", "socket netfilter"}
# Probes that are let go on, and where they must end.
BOUNDED: dict[str, Any] = {
    "kernel_memory": lambda got: got == "nothing",
    "keys_and_timers": lambda got: got == "nothing",
    "other_cores": lambda got: got == [0],
    "sockets_of_the_host": lambda got: got == 0,
    "kill_the_launcher": lambda got: got in "SR",
    "fill tmp": lambda got: 30 * MIB < got <= 32 * MIB,
    "fill run": lambda got: 15 * MIB < got <= 16 * MIB,
    "fill shm": lambda got: 30 * MIB < got <= 32 * MIB,
    "inodes": lambda got: got[0] == "ENOSPC" and got[1] < 1024,
    "fork_bomb": lambda got: got[0] == "EAGAIN" and got[1] < 256,
    "memory_of_the_host": lambda got: got == -9,
}
HOST_FILES = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory")

NEIGHBOUR = """
import os, time
open('/data/outputs/mine', 'w').write('untouched')
end = time.monotonic() + 60
while not os.path.exists('/data/outputs/stop') and time.monotonic() < end:
    time.sleep(0.02)
assert open('/data/outputs/mine').read() == 'untouched'
assert os.listdir('/tmp') == []
"""


def host() -> list[str]:
    return [socket.gethostname(), *(Path(path).read_text() for path in HOST_FILES)]


def test_forty_ways_out_lead_nowhere(make: Maker, sandbox_image: str, tmp_path: Path) -> None:
    before = host()
    neighbour = make(sandbox_image, argv=("python3", "-c", NEIGHBOUR), uid=300_001)
    neighbour.create()
    neighbour.start()
    program = {"abuse.py": (PROGRAMS / "abuse.py").read_bytes()}
    run = make(sandbox_image, argv=("python3", "/data/inputs/abuse.py"), inputs=program).whole()
    neighbour_files = Path(neighbour.config["HostConfig"]["Mounts"][2]["Source"]) / "outputs"
    (neighbour_files / "stop").touch()

    assert run.errors == b""
    verdicts = json.loads(run.log)
    assert len(verdicts) > 60
    reached = {
        name: got
        for name, (verdict, got) in verdicts.items()
        if verdict == "ok" and name not in LEFT_TO_THE_ENGINE and not (name in BOUNDED and BOUNDED[name](got))
    }
    assert reached == {}
    assert not [name for name, (verdict, _) in verdicts.items() if verdict in ("NameError", "TypeError")]

    assert run.facts is not None
    assert run.facts.exit_code == 0
    assert run.marker is not None
    assert (run.marker.status, run.marker.stdout_bytes) == ("exited", len(run.log))
    assert neighbour.wait().exit_code == 0
    assert host() == before
    assert cgroup.processes(run.cgroup) == set()


def test_what_the_main_process_takes_too_much_of_ends_it_alone(make: Maker, sandbox_image: str) -> None:
    run = make(
        sandbox_image, argv=("python3", "-c", "x = [bytes(1 << 20) + b'x' for _ in range(9999)]")
    ).whole()
    assert run.facts is not None
    assert (run.facts.exit_code, run.facts.oom_killed) == (137, True)
    assert run.marker is not None
    assert (run.marker.status, run.marker.signal) == ("signaled", 9)
    peak = cgroup.usage(run.cgroup).peak_bytes
    assert peak is not None
    assert 0.98 * 128 * MIB <= peak <= 130 * MIB
