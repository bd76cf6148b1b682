import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compute_site.embedded.processes import Process
from compute_site.embedded.progress import Failed
from compute_site.embedded.supervisor import Supervisor
from tests.embedded.waiting import eventually, gone

DRAINS = """
import pathlib, signal, sys, time
log, name, seconds = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def end(*_):
    time.sleep(seconds)
    with log.open("a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
(log.parent / (name + ".up")).touch()
while True:
    time.sleep(60)
"""
STUBBORN = DRAINS.replace(
    "signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
)


def process(folder: Path, name: str, code: str = DRAINS, drain: float = 0.0, **options) -> Process:
    argv = (sys.executable, "-c", code, str(folder / "log"), name, str(drain))
    return Process(name, argv, ready=(folder / f"{name}.up").exists, **options)


def test_stops_rank_by_rank_each_drained_before_the_next(tmp_path: Path):
    supervisor = Supervisor({}, tmp_path)
    supervisor.start(process(tmp_path, "web", stop_rank=2))
    supervisor.start(process(tmp_path, "beat", stop_rank=1))
    supervisor.start(process(tmp_path, "slow", drain=0.4))
    supervisor.start(process(tmp_path, "quick", drain=0.1))
    pids = [supervisor.pid(name) for name in ("web", "beat", "slow", "quick")]
    supervisor.stop()
    assert (tmp_path / "log").read_text().split() == ["quick", "slow", "beat", "web"]
    assert all(gone(pid) for pid in pids)
    supervisor.stop()  # Safe to repeat.


def test_one_that_does_not_drain_in_time_is_killed(tmp_path: Path):
    supervisor = Supervisor({}, tmp_path)
    supervisor.start(process(tmp_path, "deaf", STUBBORN, stop_seconds=0.2))
    supervisor.start(process(tmp_path, "web", stop_rank=1))
    pid = supervisor.pid("deaf")
    supervisor.stop()
    assert gone(pid)
    assert (tmp_path / "log").read_text().split() == ["web"]


def test_a_second_signal_makes_it_hurry(tmp_path: Path):
    supervisor = Supervisor({}, tmp_path)
    supervisor.start(process(tmp_path, "deaf", STUBBORN, stop_seconds=60))
    hurry = threading.Event()
    hurry.set()
    started = time.monotonic()
    supervisor.stop(hurry)
    assert time.monotonic() - started < 5


def test_every_line_carries_the_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    supervisor = Supervisor({}, tmp_path)
    supervisor.run_to_end(Process("migrate", (sys.executable, "-c", "print('one'); print('two', end='')")))
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["migrate | one", "migrate | two"]


def test_a_log_takes_the_lines_in_the_place_of_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    supervisor = Supervisor({}, tmp_path, log=tmp_path / "site.log")
    with pytest.raises(Failed, match=f"see {tmp_path}/site.log"):
        supervisor.run_to_end(Process("migrate", (sys.executable, "-c", "print('one'); raise SystemExit(1)")))
    assert capfd.readouterr().out == ""
    assert (tmp_path / "site.log").read_text() == "migrate | one\n"


def test_a_failed_preparation_and_a_failed_start_are_told(tmp_path: Path):
    supervisor = Supervisor({}, tmp_path)
    with pytest.raises(Failed, match="migrate ended with code 3"):
        supervisor.run_to_end(Process("migrate", (sys.executable, "-c", "raise SystemExit(3)")))
    with pytest.raises(Failed, match="web did not start"):
        supervisor.start(Process("web", (sys.executable, "-c", ""), ready=lambda: False))
    supervisor.stop()


def test_one_that_ends_by_itself_is_seen_and_can_be_started_again(tmp_path: Path):
    supervisor = Supervisor({}, tmp_path)
    one = process(tmp_path, "one")
    supervisor.start(one)
    supervisor.signal("one", signal.SIGKILL)
    assert eventually(lambda: supervisor.ended() == {"one": -signal.SIGKILL})
    supervisor.start(one)
    assert supervisor.ended() == {}
    first = supervisor.pid("one")
    supervisor.restart("one")
    assert supervisor.pid("one") not in (None, first)
    supervisor.stop()


SUPERVISED = """
import sys, time
from pathlib import Path
from compute_site.embedded.keeper import Keeper
from compute_site.embedded.processes import Process
from compute_site.embedded.supervisor import Supervisor
child = "import subprocess, os; p = subprocess.Popen(['sleep', '600']); print('pids', os.getpid(), p.pid, flush=True); p.wait()"
supervisor = Supervisor({}, Path("/"), Keeper())
supervisor.start(Process("one", (sys.executable, "-c", child)))
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_child_and_no_grandchild_outlives_the_supervisor(number: signal.Signals):
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISED], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    line = supervisor.stdout.readline()
    child, grandchild = (int(word) for word in line.split()[-2:])
    os.kill(supervisor.pid, number)
    supervisor.wait()
    assert gone(child)
    assert gone(grandchild)
    supervisor.stdout.close()
