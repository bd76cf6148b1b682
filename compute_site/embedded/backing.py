"""What every process of the site stands on: PostgreSQL, Valkey, a Docker engine, the launcher, the base image."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from pathlib import Path

from . import sandbox
from .engine import Engine
from .keeper import Keeper
from .lock import FolderLock
from .mounts import unmount_below
from .paths import Places, made
from .postgres import Postgres
from .progress import Failed, step, warn
from .valkey import Valkey


class Backing:
    """One set of services below `places`, started in order and stopped when the processes above are gone.

    `durable=False` is for tests: no fsync, and containers end with the engine. Raises `Failed` when
    another process uses the same folder.
    """

    def __init__(self, places: Places, *, durable: bool = True) -> None:
        self.places = places
        self.lock = FolderLock(places.root)
        self.lock.take()
        self.postgres = Postgres(places, durable=durable)
        self.valkey = Valkey(places)
        self.engine = Engine(places, live_restore=durable)
        self.image = ""
        self._started: list[Postgres | Valkey | Engine] = []
        self.keeper = Keeper(self.lock.file)

    def start(self) -> None:
        """Start all three; on a failure stop what was started and raise `Failed`."""
        try:
            if self.engine.private is not None:
                self.keeper.watch_engine(self.engine.private)
            # The engine first: it is the one that may be impossible here.
            for part in (self.engine, self.postgres, self.valkey):
                part.start()
                self._started.append(part)
        except BaseException:
            self.stop()
            raise

    def prepare_sandbox(self, *, required: bool = True) -> None:
        """Build the launcher and the base image; without `required` a failure is only printed."""
        try:
            sandbox.build_launcher()
            self.image = sandbox.build_image(self.engine.docker_host)
        except Failed as problem:
            if required:
                raise
            warn(str(problem))

    def stop(self, *, quiet: bool = False) -> None:
        """Stop what was started; nothing of it runs or is mounted afterwards. Safe to repeat."""
        for part in (self.valkey, self.postgres, self.engine):
            if part in self._started and not part.given and not quiet:
                step(f"{part.name}: stopping")
            part.stop()  # Also one that failed half way.
        self._started.clear()
        if self.engine.private is not None:
            unmount_below(self.places.root / "state")  # The disks of jobs that ran until now.
            shutil.rmtree(self.places.sockets, ignore_errors=True)
        self.keeper.dismiss()
        self.lock.release()

    def environment(self) -> dict[str, str]:
        """What a process of the site reads from its environment; what is set already stays."""
        root = self.places.root
        values = {
            "DATABASE_URL": self.postgres.url,
            "REDIS_URL": self.valkey.url,
            "DOCKER_HOST": self.engine.docker_host,
            "LAUNCHER": str(sandbox.LAUNCHER),
            "SECRET_KEY": _secret(root / "secret"),
            "STATE_DIR": str(made(root / "state")),
            "DATA_DIR": str(made(root / "data")),
            "SITE_ID": self.places.site_id,
            "ALLOWED_HOSTS": "localhost,127.0.0.1",
        }
        if self.image:
            values["SANDBOX_IMAGE"] = self.image
        return {key: os.environ.get(key) or value for key, value in values.items()}


def exports(environment: dict[str, str]) -> str:
    """The environment as lines that a shell reads with `.`"""
    return "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())


def _secret(path: Path) -> str:
    """Random once, kept for the next start: sessions and signatures stay valid."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48))
    return path.read_text()
