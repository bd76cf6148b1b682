"""The figures as lines for a terminal, each beside its aim."""

from collections.abc import Mapping
from typing import Any

OURS = ("web", "engine", "site", "beat", "postgres", "valkey")


def throughput(figures: Mapping[str, Any]) -> list[str]:
    """Latency, then one block for each degree of parallelism."""
    latency = figures["latency"]
    loop, site = latency["loop"], latency["post_to_finished"]
    lines = [
        f"machine: {_pairs(figures['machine'])}",
        f"one run of the loop          {_spread(loop)}",
        f"POST to finished             {_spread(site)}",
        f"  aim <= loop + 30 ms        {site['median'] - loop['median']:+.0f} ms",
        f"POST                         {_spread(latency['post'])}",
        f"between events, ms:          {_pairs(latency['phases'])}",
        f"idle, CPU-ms a second:       {_pairs(figures['idle_cpu_ms_per_s'])}",
    ]
    for width, one in figures["parallel"].items():
        lines += _width(width, one)
    return lines


def _width(width: str, one: Mapping[str, Any]) -> list[str]:
    loop, site = one["loop"], one["site"]
    return [
        f"{width} at a time (the site has {one['slots']} cores to give)",
        f"  jobs a second              loop {loop['per_second']:.2f}, site {site['per_second']:.2f}",
        f"  aim >= 1.5 times           {one['jobs_per_second_ratio']:.2f} times",
        f"  loop, CPU-ms a run:        {_pairs(loop['cpu'])}",
        f"  site, CPU-ms a job:        {_pairs(site['cpu'])}",
        f"  aim <= 40 outside Docker   {one['cpu_outside_docker']:.1f}",
    ]


SITES = {
    "new": "small: 10 environments, 10 live reservations, no old job",
    "old": "the same with {old_jobs} old jobs",
    "environments": "the same with 1,000 environments",
    "live": "the same with 500 live reservations",
}


def reservation(figures: Mapping[str, Any]) -> list[str]:
    """Acquire and release on the small site, and on each that has grown."""
    lines = [f"machine: {_pairs(figures['machine'])}; {figures['contenders']} processes"]
    for name, words in SITES.items():
        one = figures[name]
        lines.append(f"{words.format(**figures)}: {one['cycles_per_second']:.0f} cycles a second")
        lines += [f"  {what:<26} {_spread(one[what])}" for what in ("acquire", "release")]
        if name in figures["growth"]:
            lines.append(f"  aim growth <= 1.2          {_pairs(figures['growth'][name])}")
    return [
        *lines,
        f"aim p99 <= 30 ms             {figures['old']['acquire']['p99']:.1f} ms",
        f"aim no deadlock              {figures['deadlocks']}",
    ]


def _spread(one: Mapping[str, float]) -> str:
    values = ", ".join(f"{name} {one[name]:.1f}" for name in ("median", "p95", "p99", "max"))
    return f"{values} ms (n = {one['n']:.0f})"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )
