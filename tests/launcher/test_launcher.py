"""What PID 1 promises, one promise a test, against the real program."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launcher.namespace import AS_ROOT, UID, Container, Runner, until

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def program(source: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", source)


def living() -> set[int]:
    return {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- how it ended -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_exit_code_is_the_main_process(runner: Runner, code: int) -> None:
    exit_code, container = runner.run("sh", "-c", f"exit {code}")
    marker = container.marker()
    assert (exit_code, marker["status"], marker["code"], marker["signal"]) == (code, "exited", code, 0)
    assert (marker["deadline"], marker["termed"], marker["exec_errno"], marker["v"]) == (False, False, 0, 1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
def test_death_by_signal(runner: Runner, number: int) -> None:
    exit_code, container = runner.run("sh", "-c", f"kill -{int(number)} $$")
    marker = container.marker()
    assert exit_code == 128 + number
    assert (marker["status"], marker["code"], marker["signal"]) == ("signaled", 0, number)
    assert marker["termed"] is False


def test_marker_has_times_and_boot_id(runner: Runner) -> None:
    before = time.monotonic_ns()
    _, container = runner.run(*program("x = bytearray(50_000_000); [i for i in range(1_000_000)]"))
    marker, boot = container.marker(), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert before < marker["started_ns"] < marker["ended_ns"] < time.monotonic_ns()
    assert marker["boot_id_start"] == marker["boot_id_end"] == boot
    assert 48_000 < marker["max_rss_kib"] < 200_000
    assert marker["user_us"] + marker["system_us"] > 5_000


@pytest.mark.parametrize(
    ("name", "code", "number"),
    [
        ("no-such-program", 127, errno.ENOENT),
        ("/no/such/program", 127, errno.ENOENT),
        ("/etc/passwd/program", 127, errno.ENOTDIR),
        ("", 127, errno.ENOENT),
        ("/etc/passwd", 126, errno.EACCES),
        ("/", 126, errno.EACCES),
    ],
)
def test_program_that_cannot_run(runner: Runner, name: str, code: int, number: int) -> None:
    exit_code, container = runner.run(name)
    marker = container.marker()
    assert (exit_code, marker["code"]) == (code, code)
    assert (marker["status"], marker["exec_errno"]) == ("exec_failed", number)


def test_file_that_is_no_program_is_not_given_to_a_shell(runner: Runner) -> None:
    script = runner.folder / "script"
    script.write_text("exit 0\n")
    script.chmod(0o755)
    for name in (str(script), "script"):
        exit_code, container = runner.run(name, env={"PATH": f"{runner.folder}:/usr/bin:/usr/sbin"})
        assert (exit_code, container.marker()["exec_errno"]) == (126, errno.ENOEXEC)


@pytest.mark.skipif(not AS_ROOT, reason="root's own folders are open to everybody who runs this")
def test_closed_folder_of_path_is_passed_over(runner: Runner) -> None:
    closed = runner.folder / "closed"
    closed.mkdir(mode=0o700)
    exit_code, _ = runner.run("no-such-program", env={"PATH": f"{closed}:/usr/bin:/usr/sbin"})
    assert exit_code == 127
    exit_code, _ = runner.run("true", env={"PATH": f"{closed}::/usr/bin:/usr/sbin"})
    assert exit_code == 0


# -- what the job is given --------------------------------------------------------------------------------------------


def test_job_starts_clean(runner: Runner) -> None:
    reading, writing = os.pipe()
    source = """
import os, signal
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1], os.readlink("/proc/self/fd/0"))
print(os.getsid(0) == os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([line for line in open("/proc/self/status") if line.startswith("SigIgn")][0].split()[1])
"""
    with open(writing, "wb"):
        _, container = runner.run(*program(source), pass_fds=(writing,))
    os.close(reading)
    # Python itself ignores PIPE and XFSZ.
    assert container.log() == b"[0, 1, 2] /dev/null\nTrue set()\n0000000001001000\n"


def test_launcher_is_out_of_reach(runner: Runner) -> None:
    source = """
import os, signal
for name in ("fd", "environ", "mem", "maps"):
    try:
        os.listdir("/proc/1/fd") if name == "fd" else open("/proc/1/" + name, "rb").read(1)
        print(name, "is open")
    except OSError:
        pass
for number in set(signal.Signals) - {signal.SIGCHLD}:
    os.kill(1, number)
print("unharmed")
"""
    exit_code, container = runner.run(*program(source))
    assert (exit_code, container.log(), container.marker()["termed"]) == (0, b"unharmed\n", False)


# -- the log ----------------------------------------------------------------------------------------------------------


def test_log_is_kept_byte_for_byte(runner: Runner) -> None:
    blob = bytes(range(256)) * 4000
    source = (
        "import os,sys; b=bytes(range(256))*4000; sys.stdout.buffer.write(b); os.write(2, b'\\xff\\0no end')"
    )
    _, container = runner.run(*program(source), cap=2_000_000)
    assert container.log() == blob
    assert container.log("stderr") == b"\xff\0no end"
    marker = container.marker()
    assert (marker["stdout_bytes"], marker["stderr_bytes"]) == (len(blob), 8)
    assert (marker["stdout_cut"], marker["stderr_cut"]) == (0, 0)


@pytest.mark.parametrize("cap", [0, 1, 65_536, 99_999, 100_000, 100_001])
def test_cut_is_counted_exactly(runner: Runner, cap: int) -> None:
    source = "import os; os.write(1, b'a'*99_999); os.write(1, b'z'); os.write(2, b'b'*7)"
    _, container = runner.run(*program(source), cap=cap)
    marker, whole = container.marker(), b"a" * 99_999 + b"z"
    assert container.log() == whole[:cap]
    assert (marker["stdout_bytes"], marker["stdout_cut"]) == (min(cap, 100_000), max(100_000 - cap, 0))
    assert (marker["stderr_bytes"], marker["stderr_cut"]) == (min(cap, 7), max(7 - cap, 0))


def test_gigabyte_line_moves_neither_memory_nor_the_job(runner: Runner) -> None:
    source = "import os\nb = b'x' * 1_000_000\nfor _ in range(1000):\n    n = 0\n    while n < len(b): n += os.write(1, b[n:])"
    container = runner.start(*program(source), cap=10)
    pid = container.pid()
    until(container.log)
    status = Path(f"/proc/{pid}/status").read_text()
    resident = int(status.split("VmHWM:")[1].split()[0])
    assert container.wait() == 0
    assert container.marker()["stdout_cut"] == 1_000_000_000 - 10
    assert resident < 2_000


def test_flood_of_one_byte_lines_costs_little(runner: Runner) -> None:
    source = "import os\nfor _ in range(400_000): os.write(1, b'\\n')\nwhile True: os.write(2, b'\\n')"
    container = runner.start(*program(source), cap=10_000_000, deadline=60)
    until(lambda: container.log("stderr"))
    pid = container.pid()
    spent = cpu_seconds(pid)
    container.signal(signal.SIGTERM)
    container.wait()
    marker = container.marker()
    assert marker["stdout_bytes"] == 400_000
    job = (marker["user_us"] + marker["system_us"]) / 1e6
    assert spent < 0.15 * job + 0.02


def test_file_size_limit_counts_as_cut(runner: Runner) -> None:
    source = "import os; os.write(1, b'x'*5000); os.write(1, b'y'*5000)"
    exit_code, container = runner.run(*program(source), limits="--fsize=6000")
    marker = container.marker()
    assert exit_code == 0
    assert container.log() == b"x" * 5000 + b"y" * 1000
    assert (marker["stdout_bytes"], marker["stdout_cut"]) == (6000, 4000)


@pytest.mark.skipif(not AS_ROOT, reason="mounts a small file system, in a namespace of its own")
def test_full_disk_counts_as_cut_and_the_marker_still_fits(runner: Runner) -> None:
    source = "import os; os.write(1, b'x' * 200_000); os.write(2, b'y')"
    folder, result = runner.control(), runner.control()
    script = """
mount -t tmpfs -o size=64k,mode=711 tmpfs "$1" && touch "$1"/stdout "$1"/stderr "$1"/marker
chown "$4:$4" "$1"/* && chmod 600 "$1"/*
unshare --pid --fork --mount-proc setpriv --reuid=$4 --regid=$4 --clear-groups \\
    "$3" "$1" 10 1000000 1 -- "$5" -c "$6"
cp "$1"/* "$2"
"""
    command = ["unshare", "--mount", "sh", "-ec", script, "-"]
    command += [str(folder), str(result), str(runner.launcher), str(UID), PYTHON, source]
    subprocess.run(command, check=True)
    marker = json.loads((result / "marker").read_bytes())
    kept = (result / "stdout").stat().st_size
    assert 0 < kept <= 65_536 - 4096
    assert (marker["stdout_bytes"], marker["stdout_cut"]) == (kept, 200_000 - kept)
    assert (marker["stderr_bytes"], marker["stderr_cut"]) == (0, 1)


def test_stream_closed_early_ends_nothing(runner: Runner) -> None:
    source = "import os, time; os.write(1, b'out'); os.close(1); os.close(2); time.sleep(0.2); os._exit(4)"
    exit_code, container = runner.run(*program(source))
    marker = container.marker()
    assert (exit_code, container.log()) == (4, b"out")
    assert marker["ended_ns"] - marker["started_ns"] > 200_000_000


def test_last_words_are_not_lost(runner: Runner) -> None:
    for _ in range(20):
        _, container = runner.run("sh", "-c", "echo one; echo two >&2; exec printf three")
        assert (container.log(), container.log("stderr")) == (b"one\nthree", b"two\n")


# -- what is left behind ----------------------------------------------------------------------------------------------


def test_orphans_are_killed_and_taken(runner: Runner) -> None:
    source = """
import os, signal, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.fork()
        while True: time.sleep(1)
print("main is done", flush=True)
"""
    before = living()
    exit_code, container = runner.run(*program(source))
    assert (exit_code, container.log()) == (0, b"main is done\n")
    assert not [pid for pid in living() - before if b"main is done" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_fork_storm_is_ended(runner: Runner) -> None:
    source = """
import os, time
def storm():
    while True:
        try: os.fork()
        except OSError: time.sleep(0.01)
if os.fork() == 0: storm()
time.sleep(0.2)
"""
    limits = "--nproc=100" if AS_ROOT else ""
    if not limits:
        pytest.skip("the limit would count this user's other processes")
    exit_code, container = runner.run(*program(source), limits=limits)
    assert (exit_code, container.marker()["status"]) == (0, "exited")


def test_zombies_do_not_pile_up(runner: Runner) -> None:
    source = """
import os, time
def state(pid):
    try: return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError: return "gone"
for _ in range(50):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
for _ in range(500):
    states = [state(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    if "Z" not in states: break
    time.sleep(0.01)
print(states.count("Z"))
"""
    _, container = runner.run(*program(source))
    assert container.log() == b"0\n"


def test_marker_comes_after_everything_else_is_dead(runner: Runner) -> None:
    source = """
import os
path = os.environ["CONTROL"] + "/marker"
if os.fork() == 0:
    while True:
        with open(path, "w") as marker: marker.write('{"status": "exited", "code": 0}' * 100)
while os.stat(path).st_size < 2: pass
os._exit(9)
"""
    folder = runner.control()
    exit_code, container = runner.run(
        *program(source), control=folder, env={**os.environ, "CONTROL": str(folder)}
    )
    assert (exit_code, container.marker()["code"]) == (9, 9)


def test_what_the_job_wrote_is_replaced(runner: Runner) -> None:
    source = """
import os
for name in ("stdout", "stderr", "marker"):
    with open(os.environ["CONTROL"] + "/" + name, "ab") as file: file.write(b"x" * 1_000_000)
for call in (os.unlink, lambda path: os.rename(path, path + "2")):
    try: call(os.environ["CONTROL"] + "/marker")
    except OSError: continue
    os._exit(50)
os.write(1, b"mine")
"""
    folder = runner.control()
    if not AS_ROOT:
        source = source.replace("for call in", "for call in () and")
    exit_code, container = runner.run(
        *program(source), control=folder, env={**os.environ, "CONTROL": str(folder)}
    )
    assert (exit_code, container.marker()["code"]) == (0, 0)
    assert (container.log(), container.log("stderr")) == (b"mine", b"")


@pytest.mark.parametrize(("status", "code"), [("exited", 0), ("refused", 125)])
def test_broken_launcher_leaves_nothing_of_the_jobs(runner: Runner, status: str, code: int) -> None:
    """Neither a success nor, with the code that it ends with itself then, a refusal, which would cost nothing."""
    told = json.dumps({"v": 1, "status": status, "code": code})
    source = f"""
import os, resource
with open(os.environ["CONTROL"] + "/marker", "w") as marker: marker.write({told!r})
resource.prlimit(1, resource.RLIMIT_FSIZE, (0, 0))
"""
    folder = runner.control()
    exit_code, container = runner.run(
        *program(source), control=folder, env={**os.environ, "CONTROL": str(folder)}
    )
    assert (exit_code, (container.control / "marker").read_bytes()) == (125, b"")


# -- a second run, bad calls ------------------------------------------------------------------------------------------


def refused(container: Container) -> str:
    assert container.wait() == 125
    assert container.process.stderr is not None
    said: str = container.process.stderr.read().decode()
    assert said.startswith("launcher: ")
    assert said.count("\n") == 1
    return said


def test_second_run_is_refused(runner: Runner) -> None:
    _, first = runner.run("echo", "once")
    marker = (first.control / "marker").read_bytes()
    assert "not empty" in refused(runner.start("echo", "twice", control=first.control))
    assert (first.log(), (first.control / "marker").read_bytes()) == (b"once\n", marker)


def test_second_run_is_refused_after_the_launcher_was_killed(runner: Runner) -> None:
    first = runner.start("sh", "-c", "echo once; sleep 60")
    until(first.log)
    first.signal(signal.SIGKILL)
    first.wait()
    assert (first.control / "marker").read_bytes() == b"\n"
    assert "not empty" in refused(runner.start("echo", "twice", control=first.control))
    assert first.log() == b"once\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"deadline": 0}, {"deadline": -1}, {"deadline": "1s"}, {"deadline": ""}, {"deadline": " 1"},
        {"deadline": 10**10}, {"cap": "nan"}, {"cap": 10**30}, {"grace": "+1"}, {"grace": 86_401},
        {"control": Path("/no/such/folder")}, {"control": Path("/etc")},
    ],
)  # fmt: skip
def test_bad_call_is_refused(runner: Runner, wrong: dict[str, object]) -> None:
    container = runner.start("true", **wrong)  # type: ignore[arg-type]
    refused(container)
    if "control" not in wrong:
        assert (container.control / "marker").read_bytes() == b""


def test_file_of_another_kind_is_refused(runner: Runner) -> None:
    for name in ("stdout", "marker"):
        folder = runner.control()
        (folder / name).unlink()
        os.mkfifo(folder / name, 0o666)
        assert name in refused(runner.start("true", control=folder))


def test_runs_only_as_pid_1(launcher: Path, runner: Runner) -> None:
    command = [str(launcher), str(runner.control()), "5", "5", "5", "--", "true"]
    assert os.spawnv(os.P_WAIT, str(launcher), command) == 125


# -- signals and the clock --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_from_outside_are_forwarded(runner: Runner, name: str) -> None:
    script = f"trap 'echo got; exit 7' {name}; echo ready; while :; do sleep 0.02; done"
    container = runner.start("sh", "-c", script)
    until(container.log)
    container.signal(getattr(signal, f"SIG{name}"))
    assert (container.wait(), container.log()) == (7, b"ready\ngot\n")
    assert container.marker()["termed"] is (name == "TERM")


def test_stop_that_is_not_obeyed_becomes_a_kill(runner: Runner) -> None:
    container = runner.start("sh", "-c", "trap '' TERM; echo ready; sleep 60", grace=0)
    until(container.log)
    container.signal(signal.SIGTERM)
    marker_code = container.wait(), container.marker()["signal"]
    assert marker_code == (137, 9)
    assert (container.marker()["termed"], container.marker()["deadline"]) == (True, False)


def test_deadline_of_a_silent_job(runner: Runner) -> None:
    container = runner.start("sleep", "60", deadline=1)
    assert container.wait() == 124
    marker = container.marker()
    assert (marker["deadline"], marker["termed"], marker["signal"]) == (True, False, signal.SIGTERM)
    assert 1.0e9 <= marker["ended_ns"] - marker["started_ns"] < 1.5e9


def test_deadline_of_a_printing_job_that_ignores_it(runner: Runner) -> None:
    source = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
while True: os.write(1, b"line\\n" * 1000)
"""
    container = runner.start(*program(source), deadline=1, grace=1, cap=1000)
    assert container.wait() == 124
    marker = container.marker()
    assert (marker["deadline"], marker["signal"], marker["stdout_bytes"]) == (True, signal.SIGKILL, 1000)
    assert marker["stdout_cut"] > 1_000_000
    assert 2.0e9 <= marker["ended_ns"] - marker["started_ns"] < 3e9


def test_deadline_obeyed_with_exit_0_is_still_the_deadline(runner: Runner) -> None:
    container = runner.start("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done", deadline=1)
    assert (container.wait(), container.marker()["status"], container.marker()["code"]) == (124, "exited", 0)


def test_idle_job_never_wakes_the_launcher(runner: Runner) -> None:
    container = runner.start("sh", "-c", "echo ready; sleep 60")
    until(container.log)
    time.sleep(0.05)  # let the rest after that read pass
    status = Path(f"/proc/{container.pid()}/status")
    before = switches(status)
    time.sleep(0.3)
    assert switches(status) == before


def switches(status: Path) -> list[str]:
    return [line for line in status.read_text().splitlines() if "ctxt_switches" in line]
