"""The processes of a site, as data: what ./run up starts, and in what order it stops them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from .paths import RUN

ENGINE_NAME = "local"
FLEET = RUN / "fleet"  # Keys and settings of the demo's agents, a folder for each owner.
PREPARED = RUN / "prepared.json"  # The admin's one-time password and a client's token.


@dataclass(frozen=True, slots=True)
class Process:
    """One process. Those with the lowest `stop_rank` are stopped first, all of one rank together.

    `stop_seconds` is how long it may drain before it is killed; `ready` is asked until it says yes.
    """

    name: str
    argv: tuple[str, ...]
    stop_rank: int = 0
    stop_seconds: float = 20.0
    ready: Callable[[], bool] | None = None
    ready_seconds: float = 60.0


def preparations() -> list[Process]:
    """What runs to its end before the site starts, in this order."""
    return [
        Process("migrate", _manage("migrate", "--no-input", "--verbosity", "0")),
        # Changes nothing where a site is set up already.
        Process("prepare", _manage("prepare_demo", "--output", str(PREPARED))),
    ]


def site(port: int, web_ready: Callable[[], bool]) -> list[Process]:
    """The site's own processes, in the order of their start: web last, so that the others are up when it answers."""
    web = (sys.executable, "-m", "uvicorn", "compute_site.asgi:application", "--host", "127.0.0.1")
    celery = (sys.executable, "-m", "celery", "--quiet", "-A", "compute_site")
    beat = (*celery, "beat", "--loglevel", "warning", "--pidfile", "")
    return [
        Process("engine", _manage("engine_worker", ENGINE_NAME), stop_rank=0, stop_seconds=40),
        Process("site", _manage("site_worker"), stop_rank=0, stop_seconds=40),
        Process("beat", beat, stop_rank=1),
        Process("web", (*web, "--port", str(port), "--no-access-log"), stop_rank=2, ready=web_ready),
    ]


def fleet_preparation(url: str, owners: tuple[str, ...], liar: str) -> Process:
    """Makes the fleet of the demo; the site runs already."""
    arguments = (*owners, "--site-url", url, "--output", str(FLEET), "--lies", liar)
    return Process("fleet", _manage("prepare_fleet", *arguments))


def fleet_agent(owner: str) -> Process:
    """One owner's agent."""
    config = str(FLEET / owner / "agent.yaml")
    return Process(owner, (sys.executable, "-m", "workers.fleet.agent", "--config", config))


def _manage(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "manage.py", *arguments)
