"""Child processes that cannot outlive us: killed by the kernel when the process that started them dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from .progress import Failed

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def bind_to_parent(parent: int, death_signal: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `death_signal` to this process when its parent dies; leave now if it has."""
    _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    user: pwd.struct_passwd | None = None,
    output: IO[Any] | int | None = None,
    source: IO[Any] | int = subprocess.DEVNULL,
    death_signal: int = signal.SIGKILL,
    folder: Path | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, as `user` if given; its stdin is `source`, empty by default.

    A session of its own keeps the terminal's Ctrl-C from reaching it: we decide the order of the stop.
    The kernel ties the child to the *thread* that starts it, so call this from a thread that lives as
    long as the program. `before` runs in the child, still as ourselves (to join a cgroup).
    """
    parent = os.getpid()

    def prepare() -> None:
        if before is not None:
            before()
        if user is not None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        bind_to_parent(parent, death_signal)  # After setuid, which clears it.

    return subprocess.Popen(
        list(argv),
        env=dict(env) if env is not None else None,
        stdin=source,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        cwd=folder,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - only system calls in there, no locks of ours
    )


def unprivileged_user() -> pwd.struct_passwd | None:
    """Who runs PostgreSQL and Valkey: `postgres` or `nobody` when we are root, ourselves (None) otherwise."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Failed("No unprivileged user found: create one named 'nobody'.")


def stop(child: subprocess.Popen[bytes] | None, first: int = signal.SIGTERM, seconds: float = 15.0) -> None:
    """Signal a child and wait for it; kill its whole group when `seconds` have passed. Safe to repeat."""
    if child is None:
        return
    if child.poll() is None:
        child.send_signal(first)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
    kill_group(child)  # Grandchildren that stayed in the session.
    child.wait()


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and everything that stayed in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def wait_until(
    ready: Callable[[], bool], child: subprocess.Popen[bytes], seconds: float, failure: str
) -> None:
    """Wait for `ready`; raises `Failed` with `failure` when the child ends first or `seconds` pass."""
    deadline = time.monotonic() + seconds
    while not ready():
        if child.poll() is not None:
            raise Failed(f"{failure} (it ended with code {child.returncode})")
        if time.monotonic() > deadline:
            raise Failed(f"{failure} (not ready after {seconds:.0f} s)")
        time.sleep(0.05)


def with_descendants(pids: set[int]) -> set[int]:
    """These processes and everything below them, as parents and children are at this moment."""
    children: dict[int, set[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It may end while we look.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, set()).add(int(stat.parent.name))
    found, new = set(pids), set(pids)
    while new:
        new = {child for pid in new for child in children.get(pid, ())} - found
        found |= new
    return found


def alive(pid: int) -> bool:
    """True while that process runs; a zombie does not: it holds nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pid: int, seconds: float) -> bool:
    """Wait until that process is gone, whoever its parent is; False when it outlives `seconds`."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
