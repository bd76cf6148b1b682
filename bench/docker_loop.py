"""What the site is compared with: `docker run --rm` in a loop, with the limits that a job of the site gets."""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compute_site.embedded.dockerd import UNPACKED

COMMAND = ("python3", "-I", "-S", "-c", "pass")
MEMORY_MIB = 128
DISK_MIB = 64


def client() -> str:
    """Docker's own command line client: the unpacked one, which fits the private engine, else the machine's."""
    folders = f"{UNPACKED / 'usr/bin'}:{os.environ.get('PATH', '')}"
    found = shutil.which("docker", path=folders)
    if found is None:
        raise FileNotFoundError("docker (the command line client) is not installed")
    return found


def command(folder: Path) -> list[str]:
    """The whole command line. Data comes and goes through a bind mount, as cheap as it can be had."""
    return [
        *(client(), "run", "--rm", "--network=none", "--read-only", "--init=false", "--ipc=none"),
        *(f"--memory={MEMORY_MIB}m", f"--memory-swap={MEMORY_MIB}m", "--cpus=1", "--pids-limit=256"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=2000400000:2000400000"),
        *("--ulimit=core=0", "--ulimit=nofile=16384:16384", "--oom-score-adj=500"),
        *("--tmpfs=/tmp:size=32m,mode=0700,nosuid,nodev,noexec", "--tmpfs=/run:size=16m,nosuid,nodev,noexec"),
        *("--tmpfs=/dev/shm:size=32m,nosuid,nodev,noexec", f"--mount=type=bind,src={folder},dst=/data"),
        *(os.environ["SANDBOX_IMAGE"], *COMMAND),
    ]


def run_once(argv: Sequence[str]) -> float:
    """One run; returns its seconds. Raises CalledProcessError."""
    started = time.monotonic()
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.monotonic() - started


def run_many(argv: Sequence[str], count: int, parallel: int) -> float:
    """`count` runs, `parallel` at a time; returns the seconds of all together."""
    started = time.monotonic()
    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(lambda _: run_once(argv), range(count)))
    return time.monotonic() - started


def clients_cpu_ms() -> float:
    """CPU milliseconds of all our ended children: the command line clients."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000
