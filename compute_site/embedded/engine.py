"""The Docker engine that jobs run on: the one that answers already, else a private one."""

from __future__ import annotations

import os

from .dockerd import PrivateEngine, program, provide_programs
from .paths import Places
from .ping import answers
from .progress import Failed, step

DEFAULT_SOCKET = "/var/run/docker.sock"


def existing() -> str:
    """The address of an engine that is there already, or "". Raises `Failed` when the named one is silent."""
    named = os.environ.get("DOCKER_HOST", "")
    if named:
        # A TLS engine needs a client certificate, which only Docker's own client knows to find.
        if named.startswith("tcp://") and os.environ.get("DOCKER_TLS_VERIFY"):
            return named
        if not answers(named):
            raise Failed(f"DOCKER_HOST={named} does not answer: start that engine or unset the variable.")
        return named
    default = f"unix://{DEFAULT_SOCKET}"
    return default if answers(default) else ""


class Engine:
    """The engine that jobs run on: an existing one, used as it is, or a private one."""

    name = "Docker engine"

    def __init__(self, places: Places, *, live_restore: bool = True, use_existing: bool = True) -> None:
        self.docker_host = existing() if use_existing else ""
        self.given = bool(self.docker_host)
        self.private: PrivateEngine | None = None
        if not self.given:
            self.private = PrivateEngine(
                places.root / "docker",
                places.tag,
                sockets=places.sockets,
                live_restore=live_restore,
                site=places.site_id,
            )
            self.docker_host = self.private.docker_host

    def start(self) -> None:
        """Nothing for an existing engine; else fetch the programs if need be and start ours."""
        if self.private is None:
            step(f"Docker engine: using the one at {self.docker_host}")
            return
        provide_programs()
        step(f"Docker engine: starting {program('dockerd')}, data in {self.private.data_root}")
        self.private.start()

    def ready(self) -> bool:
        """True when it answers a ping."""
        return answers(self.docker_host)

    def stop(self) -> None:
        """Stop ours, with all it left; an existing one is not touched. Safe to repeat."""
        if self.private is not None:
            self.private.stop()
