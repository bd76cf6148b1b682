"""Numbers out of many: medians and percentiles, and CPU time of processes that are not our own."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from compute_site.embedded.cgroups import Cgroup

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile and worst of `values`, in their unit."""
    return {
        "n": len(values),
        "median": median(values),
        "p95": percentile(values, 0.95),
        "p99": percentile(values, 0.99),
        "max": max(values),
    }


def tree_cpu_ms(root: int) -> float:
    """CPU milliseconds of a process, of its living descendants, and of those that ended and were waited for."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total, ahead = 0, [root]
    while ahead:
        pid = ahead.pop()
        total += ticks.get(pid, 0)
        ahead += children.get(pid, [])
    return total * TICK_MS


@dataclass(frozen=True)
class Meter:
    """What CPU time has been used, by name: processes with their descendants, and the engine's cgroup if it is known."""

    processes: Mapping[str, int]
    engine: Cgroup | None = None

    def read(self) -> dict[str, float]:
        """CPU milliseconds until now, by name."""
        used = {name: tree_cpu_ms(pid) for name, pid in self.processes.items()}
        return used | ({"docker": self.engine.cpu_ms()} if self.engine else {})

    def since(self, before: Mapping[str, float], share: int = 1) -> dict[str, float]:
        """CPU milliseconds since `before`, each divided by `share`."""
        return {name: (now - before[name]) / share for name, now in self.read().items()}
