"""The launcher as a gate, in a network namespace of its own: what it refuses, and what stands when it is ready."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher.namespace import AS_ROOT, Runner

# Interfaces first, then the given program as PID 1 with one capability.
SETUP = """
ip link set lo up
ip link add eth0 type veth peer name other
ip addr add 11.5.0.2/24 dev eth0
ip link set eth0 up
ip link set other up
ip route add default via 11.5.0.1
"""
AS_GATE = (
    *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "setpriv", "--inh-caps=-all"),
    *("--bounding-set=-all,+net_admin", "--no-new-privs"),
)
SEND = """
import socket, sys
for name in sys.argv[1:]:
    address, _, port = name.partition(":")
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", (address, int(port)))
        print(name)
    except PermissionError:
        pass
"""

Said = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def said(launcher: Path) -> Said:
    """Run the launcher with these arguments in a namespace with one network; `setup` comes first."""
    if not AS_ROOT or shutil.which("ip") is None:
        pytest.skip("needs root and ip: a namespace with a network cannot be made")

    def run(*arguments: str, setup: str = SETUP) -> subprocess.CompletedProcess[str]:
        script = f'{setup}\nexec "$@"'
        command = ["unshare", "--net", "sh", "-c", script, "sh", *AS_GATE, str(launcher), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    return run


@pytest.mark.parametrize(
    ("resolvers", "closed", "words"),
    [
        ("1.1.1", "10.0.0.0/8", "1.1.1: no address"),
        ("1.1.1.1,", "10.0.0.0/8", ": no address"),
        ("1.1.1.1", "10.0.0.0/33", "10.0.0.0/33: not a number in range"),
        ("1.1.1.1", "10.0.0.0/8,,11.0.0.0/8", ": no address"),
        (",".join(["1.1.1.1"] * 9), "", "too many"),
        ("1.1.1.1", ",".join(["10.0.0.0/8"] * 513), "too many"),
    ],
)
def test_a_gate_that_is_not_told_clearly_does_not_open(
    said: Said, resolvers: str, closed: str, words: str
) -> None:
    done = said("gate", resolvers, closed)
    assert (done.returncode, done.stdout) == (125, "")
    assert words in done.stderr


def test_a_namespace_without_a_network_or_without_the_right_is_refused(said: Said, launcher: Path) -> None:
    done = said("gate", "1.1.1.1", "10.0.0.0/8", setup="ip link set lo up")
    assert (done.returncode, done.stderr) == (125, "launcher: gate: there is no network here\n")
    command = ["unshare", "--net", "sh", "-c", f'{SETUP}\nexec "$@"', "sh", *AS_GATE[:5], "setpriv"]
    command += [
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
        str(launcher),
        "gate",
        "1.1.1.1",
        "",
    ]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "gate: rules: Operation not permitted" in refused.stderr


def test_it_tells_the_addresses_of_its_namespace(said: Said) -> None:
    done = said("addresses")
    assert (done.returncode, done.stdout) == (0, "11.5.0.2\n")


def test_the_job_s_launcher_starts_nothing_without_rules(said: Said, runner: Runner) -> None:
    control = runner.control()
    for name in ("stdout", "stderr", "marker"):
        os.chown(control / name, 0, 0)  # whose launcher this one is
    done = said("--gated", str(control), "10", "1000", "1", "--", "/bin/echo", "ran")
    assert (done.returncode, done.stderr) == (
        125,
        "launcher: network: its gate is not closed: no rules stand here\n",
    )
    marker = json.loads((control / "marker").read_bytes())
    assert marker == {"v": 1, "status": "refused", "code": 125, "refused": "network"}


@pytest.mark.usefixtures("said")
def test_rules_stand_before_it_says_ready_and_stay_after_it(launcher: Path) -> None:
    """All in one namespace: the gate opens and dies, and then somebody sends."""
    tried = (
        "11.5.0.1:9",
        "10.1.1.1:9",
        "8.8.8.8:53",
        "1.1.1.1:53",
        "8.8.8.8:9",
        "127.0.0.11:9",
        "127.0.0.1:9",
    )
    script = f"""{SETUP}
    {" ".join(AS_GATE)} {launcher} gate 1.1.1.1 10.0.0.0/8 > "$1" &
    while ! grep -q ready "$1"; do sleep 0.01; done
    kill -9 $!
    wait
    exec {sys.executable} -I -c "$2" {" ".join(tried)}
    """
    began = time.monotonic()
    log = launcher.parent / "gate.log"
    log.touch()
    command = ["unshare", "--net", "sh", "-c", script, "sh", str(log), SEND]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.split() == ["1.1.1.1:53", "8.8.8.8:9", "127.0.0.1:9"], done.stderr
    assert log.read_text() == "gate: ready\n"
    assert time.monotonic() - began < 10
