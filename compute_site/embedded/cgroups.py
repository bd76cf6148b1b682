"""A cgroup of our own per engine: it tells which processes belong to it, and what CPU time they used."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from .children import alive, with_descendants

ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = "cpu memory pids cpuset io"


class Cgroup:
    """`/name` in every hierarchy: `daemon` below it for the engine itself, `jobs` for its containers.

    Works with the unified hierarchy (v2) and with one mount per controller (v1, also beside a v2 mount).
    """

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self.name = name
        self.unified = (root / "cgroup.controllers").exists()
        self._root = root
        self._mounts = [root] if self.unified else _v1_mounts(root)

    @property
    def parent_of_containers(self) -> str:
        """What dockerd takes as --cgroup-parent."""
        return f"/{self.name}/jobs"

    @property
    def accounting(self) -> Path:
        """The folder that accounts for engine and containers together (cpu.stat or cpuacct.usage)."""
        return (self._root if self.unified else self._root / "cpuacct") / self.name

    def create(self) -> None:
        """Make the folder that the engine joins; the containers' are made by the engine."""
        if self.unified:
            (self._root / self.name).mkdir(exist_ok=True)
            for folder in (self._root, self._root / self.name):
                for controller in _CONTROLLERS.split():
                    with contextlib.suppress(OSError):  # Not every kernel has every controller.
                        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        (self.accounting / "daemon").mkdir(parents=True, exist_ok=True)
        self._weigh()

    def _weigh(self) -> None:
        """As much CPU time as one process per core: without it the engine and all containers together get that of one."""
        cores = os.cpu_count() or 1
        file, weight = (
            ("cpu.weight", min(10_000, 100 * cores)) if self.unified else ("cpu.shares", 1024 * cores)
        )
        folder = (self._root if self.unified else self._root / "cpu") / self.name
        with contextlib.suppress(OSError):  # A machine without the controller shares it by process anyway.
            folder.mkdir(exist_ok=True)
            (folder / file).write_text(str(weight))

    def join(self) -> None:
        """Move the calling process in; its later children follow."""
        (self.accounting / "daemon" / "cgroup.procs").write_text(str(os.getpid()))

    def cpu_ms(self) -> float:
        """CPU milliseconds of engine, shims and containers so far, also of those that ended.

        Not of a container that was given a cgroup parent elsewhere: that one accounts for it.
        """
        if self.unified:
            for line in (self.accounting / "cpu.stat").read_text().splitlines():
                if line.startswith("usage_usec"):
                    return int(line.split()[1]) / 1e3
        return int((self.accounting / "cpuacct.usage").read_text()) / 1e6

    def processes(self) -> set[int]:
        """Every process in any of our cgroups."""
        found: set[int] = set()
        for folder in self._folders():
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        return found - {0}

    def kill(self, seconds: float = 10.0) -> bool:
        """Kill all of them and their descendants, again and again while they multiply; True when none is left.

        A container may have been given a cgroup of its own elsewhere; its first process is still a child of
        its shim, which is in ours.
        """
        deadline = time.monotonic() + seconds
        left: set[int] = set()
        while left := {pid for pid in left | with_descendants(self.processes()) if alive(pid)} - {
            os.getpid()
        }:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def remove(self) -> None:
        """Remove the empty folders, deepest first; one that is still busy stays."""
        for folder in sorted(self._folders(), key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        found = []
        for mount in self._mounts:
            for folder, _, _ in os.walk(mount / self.name):
                found.append(Path(folder))
        return found


def _v1_mounts(root: Path) -> list[Path]:
    """Each hierarchy once: `cpu` and `cpuacct` are often links to the same mount."""
    seen: dict[tuple[int, int], Path] = {}
    for folder in sorted(root.iterdir()) if root.exists() else []:
        facts = folder.stat()
        seen.setdefault((facts.st_dev, facts.st_ino), folder)
    return list(seen.values())
