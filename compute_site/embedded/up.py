"""`./run up`, `down`, `demo` and `services`: the site, or only what it stands on, until Ctrl-C."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from .backing import Backing, exports
from .demo import main as show_demo
from .demo import options
from .demo_fleet import main as show_fleet
from .demo_pods import main as show_pods
from .interrupts import Interrupted, Interrupts
from .lock import FolderLock
from .paths import REPOSITORY, RUN, Places, made
from .ports import serves
from .processes import PREPARED, preparations, site
from .progress import Failed, raw_line, step, warn
from .supervisor import Supervisor

Ready = Callable[[dict[str, str], Supervisor], None]
_IDLE_SECONDS = 0.5


def up(_: list[str]) -> int:
    """Run the site until Ctrl-C or until one of its processes ends; returns the exit code."""

    def tell(environment: dict[str, str], _: Supervisor) -> None:
        step(f"ready: {environment['SITE_URL']}/admin/ (logins: {PREPARED}; Ctrl-C stops everything)")

    return _run_site(tell)


def demo(arguments: list[str]) -> int:
    """Run the site and a demonstration on it; `--once` ends after its result."""
    chosen = options(arguments)  # Before anything is started: a wrong argument ends here.

    def show(environment: dict[str, str], supervisor: Supervisor) -> None:
        if chosen.fleet:
            show_fleet(environment, supervisor, once=chosen.once)
        else:
            story = show_pods if chosen.pods else show_demo
            story(environment, arguments, supervisor.check)

    switches = {"FLEET_ENABLED": "true"} if chosen.fleet else {}
    return _run_site(show, once=chosen.once, log=made(RUN / "log") / "site.log", switches=switches)


def services(_: list[str]) -> int:
    """Start PostgreSQL, Valkey, the Docker engine, the launcher and the image only, until Ctrl-C.

    The environment for other terminals is printed and written to .run/services.env.
    """
    interrupts = Interrupts()
    backing = Backing(Places(RUN / "services"))
    file = RUN / "services.env"
    try:
        with interrupts.raising():
            backing.start()
            _write_exports(backing)  # Early: building the image takes a while.
            backing.prepare_sandbox(required=False)
            _write_exports(backing)
            raw_line(file.read_text())
        step(f"ready: `. {file}` in another terminal (Ctrl-C stops everything)")
        interrupts.asked.wait()
    except Interrupted:
        pass
    finally:
        file.unlink(missing_ok=True)
        backing.stop()
    return 0


def down(_: list[str]) -> int:
    """Stop a site that ./run up or demo started in another terminal, and wait until it has stopped."""
    if FolderLock(RUN).end_holder():
        step("the site has stopped")
    else:
        step("no site runs here")
    return 0


def _run_site(
    when_ready: Ready,
    *,
    once: bool = False,
    log: Path | None = None,
    switches: Mapping[str, str] | None = None,
) -> int:
    """`log` takes the processes' lines when the terminal belongs to a story of its own; `switches` are settings."""
    interrupts = Interrupts()
    backing = Backing(Places(RUN))
    supervisor: Supervisor | None = None
    code = 0
    try:
        with interrupts.raising():
            backing.start()
            backing.prepare_sandbox()
            port = _port()
            environment = backing.environment() | {"SITE_URL": f"http://127.0.0.1:{port}", **(switches or {})}
            supervisor = Supervisor(environment, REPOSITORY, backing.keeper, log)
            if log is not None:
                step(f"the processes' own lines go to {log}")
            _start_site(supervisor, port)
            when_ready(environment, supervisor)
        if not once:
            code = _wait(supervisor, interrupts)
    except Interrupted:
        step("stopping")
    finally:
        if supervisor is not None:
            supervisor.stop(interrupts.hurry)
        backing.stop()
    return code


def _start_site(supervisor: Supervisor, port: int) -> None:
    for process in preparations():
        step(f"{process.name}: running")
        supervisor.run_to_end(process)
    for process in site(port, lambda: serves(port)):
        step(f"{process.name}: starting")
        supervisor.start(process)


def _wait(supervisor: Supervisor, interrupts: Interrupts) -> int:
    """Wait for a signal; 1 when a process ended by itself before that."""
    while not interrupts.asked.wait(_IDLE_SECONDS):
        try:
            supervisor.check()
        except Failed as problem:
            warn(f"{problem} Stopping everything.")
            return 1
    step("stopping")
    return 0


def _write_exports(backing: Backing) -> None:
    file = RUN / "services.env"
    file.touch(mode=0o600)
    file.write_text(exports(backing.environment()))


def _port() -> int:
    """$PORT or 8000; raises `Failed` when it is taken."""
    port = int(os.environ.get("PORT", "8000"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise Failed(f"Port {port} is taken: choose another, e.g. `PORT=8001 ./run up`.") from None
    return port
