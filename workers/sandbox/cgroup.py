"""The cgroup of one attempt: a parent of ours around Docker's own, which outlives the container.

The runtime removes a container's cgroup at its exit. The parent's counters are those of everything that was ever below
it: peak memory and CPU stay readable until we remove it, and a process that leaked from its container is still in it.
Works for version 1 (a tree per controller) and 2, with the cgroupfs and the systemd driver. Linux, and only for an
engine on this machine.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
GATE = "gate"  # behind the attempt's digits


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt has used so far; None where the kernel does not say. `memory_kills` only with version 2."""

    cpu_ns: int | None
    peak_bytes: int | None
    memory_kills: int | None


def parent(site: str, attempt: str, driver: str = "cgroupfs") -> str:
    """The value for `CgroupParent`. `attempt` is its UUID as text; systemd reads dashes as levels of slices."""
    unique = attempt.replace("-", "")
    if driver == "systemd":
        return f"compute_site_{site}-{unique}.slice"
    return f"/compute-site-{site}/{unique}"


def gate_parent(site: str, attempt: str, driver: str = "cgroupfs") -> str:
    """The same for the attempt's gate: beside the job's, so that it counts there and nowhere else."""
    return parent(site, attempt + GATE, driver)


def attempt_of(name: str) -> str:
    """The attempt of a cgroup that `existing` found: 32 hexadecimal digits, if it is one of ours."""
    return name.rsplit("/", 1)[-1].removesuffix(GATE)


def within_reach(root: Path = ROOT) -> bool:
    """Whether what an engine makes there can be read and removed from here: not in a container, whose view is its own."""
    tops = [root] if _unified(root) else [root / "memory"]
    return all(os.access(top, os.W_OK) for top in tops)


def usage(name: str, root: Path = ROOT) -> Usage:
    """Read the counters of a cgroup named by `parent`, also after its processes are gone. All None when it is absent."""
    path = _path(name)
    if _unified(root):
        cpu = _fields(root / path / "cpu.stat").get("usage_usec")
        kills = _fields(root / path / "memory.events").get("oom_kill")
        return Usage(cpu * 1000 if cpu is not None else None, _number(root / path / "memory.peak"), kills)
    peak = _number(root / "memory" / path / "memory.max_usage_in_bytes")
    return Usage(_number(root / "cpuacct" / path / "cpuacct.usage"), peak, None)


def processes(name: str, root: Path = ROOT) -> set[int]:
    """Ids of every process in it or below it, as seen from here; empty when it is absent."""
    found: set[int] = set()
    for tree in _trees(name, root):
        for folder, _, _ in os.walk(tree):
            with suppress(OSError):
                found.update(map(int, Path(folder, "cgroup.procs").read_text().split()))
    return found


def remove(name: str, root: Path = ROOT) -> bool:
    """Remove it with everything below it. True when nothing of it is left; False while a process lives in it."""
    gone = True
    for tree in _trees(name, root):
        with suppress(OSError):  # nearly always empty by now: no walk
            os.rmdir(tree)
            continue
        for folder, _, _ in os.walk(tree, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
    return gone


def existing(site: str, root: Path = ROOT) -> set[str]:
    """Names, as `parent` gives them, of all attempts' cgroups of a site on this machine (cgroupfs driver)."""
    base = f"/compute-site-{site}"
    found: set[str] = set()
    for tree in _trees(base, root):
        with suppress(OSError):
            found.update(f"{base}/{entry.name}" for entry in os.scandir(tree) if entry.is_dir())
    return found


def _path(name: str) -> str:
    """Below a tree's root. A slice `a-b-c.slice` lies in `a.slice/a-b.slice`."""
    if not name.endswith(".slice"):
        return name.strip("/")
    parts = name.removesuffix(".slice").split("-")
    return "/".join("-".join(parts[: count + 1]) + ".slice" for count in range(len(parts)))


def _unified(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def _trees(name: str, root: Path) -> Iterator[Path]:
    """The folder of that name in every hierarchy that has it: one with version 2, many with version 1."""
    tops = (
        [root]
        if _unified(root)
        else [top for top in root.iterdir() if not top.is_symlink()]
        if root.is_dir()
        else []
    )
    for top in tops:
        if (top / _path(name)).is_dir():
            yield top / _path(name)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    try:
        return {key: int(value) for key, value in (line.split() for line in path.read_text().splitlines())}
    except (OSError, ValueError):
        return {}
