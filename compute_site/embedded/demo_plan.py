"""What the demo submits, as the JSON bodies that any client would send."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "demo_jobs"


@dataclass(frozen=True, slots=True)
class Limit:
    """A job that runs into a limit: what it tries, and how it must end."""

    program: str
    tries: str
    reason: str
    job: dict[str, Any]


LIMITS = (
    Limit("eat_memory.py", "to take 8 GiB with 128 MiB reserved", "out_of_memory", {"max_duration": 60}),
    Limit("run_for_ever.py", "to run for ever with 3 s allowed", "time_limit", {"max_duration": 3}),
    Limit("try_network.py", "to reach the network", "succeeded", {"max_duration": 60}),
)


def iris_job(offers: list[dict[str, Any]]) -> dict[str, Any]:
    """The real work: program and data travel with the request; no image named means the site's own."""
    offer = next((one for one in offers if one["free_tier"]), offers[0])
    return {
        "environment": offer["id"],
        "tier": "free" if offer["free_tier"] else "paid",
        "command": ["python3", "/data/inputs/classify_iris.py"],
        "inputs": [_input("classify_iris.py"), _input("iris.csv")],
        "resources": {"cpu": 1, "ram": "256MiB", "disk": "64MiB"},
        "max_duration": 120,
        "labels": {"demo": "iris"},
    }


def limit_job(limit: Limit, offers: list[dict[str, Any]]) -> dict[str, Any]:
    """One of the jobs that run into a limit, beside the Iris job rather than behind it, if there is room."""
    offer = next((one for one in offers if not one["free_tier"]), offers[0])
    return {
        "environment": offer["id"],
        "command": ["python3", f"/data/inputs/{limit.program}"],
        "inputs": [_input(limit.program)],
        "resources": {"cpu": 1, "ram": "128MiB", "disk": "64MiB"},
        "labels": {"demo": limit.program.removesuffix(".py")},
        **limit.job,
    }


def _input(name: str) -> dict[str, str]:
    return {"name": name, "text": (PROGRAMS / name).read_text()}
