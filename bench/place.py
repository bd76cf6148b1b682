"""A site of its own for a measurement: a fresh database, its own names everywhere, real processes; nothing is left."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit
from uuid import uuid4

import django
import psycopg
from django.core.management import call_command
from psycopg import sql

from bench.figures import Meter
from compute_site.embedded import children
from compute_site.embedded.cgroups import Cgroup
from compute_site.embedded.paths import REPOSITORY, RUN, made
from compute_site.embedded.ports import free_port, serves
from compute_site.embedded.processes import site

REDIS_DATABASE = 9  # of the server's 16: queues of other sites stay untouched
NEEDED = ("DATABASE_URL", "REDIS_URL", "DOCKER_HOST", "LAUNCHER", "SANDBOX_IMAGE")


class Missing(Exception):
    """A variable that the measurement cannot do without."""


@contextmanager
def own_site() -> Iterator[Path]:
    """Point this process and its children at a migrated database and folders of their own; yields the folder.

    To be entered once, before anything of Django is imported. Raises Missing.
    """
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise Missing(f"not set: {', '.join(missing)} (`./run bench` sets them)")
    with database("site") as url, _folder() as folder:
        broker = urlsplit(os.environ["REDIS_URL"])._replace(path=f"/{REDIS_DATABASE}")
        os.environ |= {
            "REDIS_URL": urlunsplit(broker),
            "SITE_ID": f"b{uuid4().hex[:6]}",
            "STATE_DIR": f"{folder}/state",
            "DATA_DIR": f"{folder}/data",
            "UID_FIRST": "2000500000",
        }
        set_up(url)
        call_command("migrate", verbosity=0)
        yield Path(folder)


def set_up(url: str) -> None:
    """Make this process one of the site whose database is at `url`."""
    os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "compute_site.settings"}
    django.setup()


@contextmanager
def database(word: str, *, like: str = "") -> Iterator[str]:
    """A new database on the server of DATABASE_URL, empty or a copy of the one at the URL `like`; yields its URL."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    server = _at(parts, "postgres")
    name = f"bench_{word}_{uuid4().hex[:6]}"
    template = urlsplit(like).path.lstrip("/") if like else "template1"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create)
    try:
        yield _at(parts, name)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Below the state of whoever started the services: after a kill -9 of ours its disks are unmounted there."""
    above = Path(os.environ.get("STATE_DIR") or RUN / "bench" / "state")
    return tempfile.TemporaryDirectory(prefix="bench-", dir=made(above))


def _at(server: SplitResult, name: str) -> str:
    """The URL of another database of that server; urlunsplit would lose the empty host of a socket."""
    return f"{server.scheme}://{server.netloc}/{name}" + (f"?{server.query}" if server.query else "")


@contextmanager
def running(folder: Path) -> Iterator[tuple[int, Meter]]:
    """Web, engine worker, site worker and beat, as `./run up` starts them; yields web's port and a meter of all."""
    port = free_port()
    started: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        for process in site(port, lambda: serves(port)):
            log = stack.enter_context((folder / f"{process.name}.log").open("ab"))
            child = children.start(process.argv, env=os.environ, output=log, folder=REPOSITORY)
            stack.callback(children.stop, child, seconds=process.stop_seconds)
            started[process.name] = child
            if process.ready is not None:
                children.wait_until(
                    process.ready, child, process.ready_seconds, f"{process.name} did not start"
                )
        given = {name: os.environ.get(f"BENCH_{name.upper()}_PID", "") for name in ("postgres", "valkey")}
        pids = {name: child.pid for name, child in started.items()}
        pids |= {name: int(pid) for name, pid in given.items() if pid}
        cgroup = os.environ.get("BENCH_ENGINE_CGROUP", "")
        yield port, Meter(pids, Cgroup(cgroup) if cgroup else None)


def wait_until(what: Callable[[], bool], seconds: float, pause: float) -> None:
    """Ask `what` every `pause` seconds; raises TimeoutError after `seconds`."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(pause)


def keep_logs(folder: Path, to: Path) -> None:
    """Copy the processes' logs to where they outlive the measurement."""
    for log in folder.glob("*.log"):
        shutil.copy(log, made(to) / log.name)
