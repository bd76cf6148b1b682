"""`./run test`, `bench` and `chaos` against real services of their own, below .run/test and .run/bench."""

from __future__ import annotations

import os
import signal
import sys

from . import children, chromium, sandbox
from .backing import Backing
from .interrupts import Interrupted, Interrupts
from .paths import REPOSITORY, RUN, Places
from .progress import Failed, step, warn

# Much of the suite waits for containers: two processes side by side are not twice as fast, but nearly so.
BESIDE = ["-p", "tests.apart", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def test(arguments: list[str]) -> int:
    """Run the test suite with pytest's own arguments; returns pytest's exit code.

    The whole suite runs in two processes; named tests run in one, where `-s` and a debugger work.
    """
    some = any(not argument.startswith("-") for argument in arguments)
    return _pytest([*([] if some else BESIDE), "--durations=5", *arguments])


def bench(arguments: list[str]) -> int:
    """Run the measurements of the package `bench`: the one that is named, or all with their defaults."""
    plans = [arguments] if arguments else [["throughput"], ["reservation"]]
    # Services as in production: with fsync, and an engine whose containers outlive it.
    backing = Backing(Places(RUN / "bench"), durable=True)
    return _on(backing, [("bench", *plan) for plan in plans])


def chaos(arguments: list[str]) -> int:
    """Run the tests that kill and cut, in tests/chaos; returns pytest's exit code."""
    return _pytest([*_folder("chaos"), "-s", *arguments])


def _folder(name: str) -> list[str]:
    if not (REPOSITORY / "tests" / name).exists():
        raise Failed(f"tests/{name} is missing in this checkout.")
    return [f"tests/{name}"]


def _pytest(arguments: list[str]) -> int:
    return _on(Backing(Places(RUN / "test"), durable=False), [("pytest", *arguments)])


def _on(backing: Backing, modules: list[tuple[str, ...]]) -> int:
    """Run Python modules with their arguments, one after the other, until one fails; returns the last exit code."""
    interrupts = Interrupts()
    code = 0
    try:
        with interrupts.raising():
            extra = _start(backing)
        for module in modules:
            step(" ".join(module))
            code = _run(module, backing.environment() | _to_account(backing) | extra, interrupts)
            if code != 0:
                break
        return code
    except Interrupted:
        return 130
    finally:
        backing.stop(quiet=True)  # pytest's own last line stays the last one.


def _to_account(backing: Backing) -> dict[str, str]:
    """What a measurement needs to account for the services' CPU time; nothing for those that we did not start."""
    found = {
        "BENCH_POSTGRES_PID": backing.postgres.pid,
        "BENCH_VALKEY_PID": backing.valkey.pid,
        "BENCH_ENGINE_CGROUP": backing.engine.private and backing.engine.private.cgroups.name,
    }
    return {name: str(value) for name, value in found.items() if value}


def _start(backing: Backing) -> dict[str, str]:
    """Start everything; returns what tests need beyond a site's own environment."""
    if os.getuid() != 0:
        warn("not root: tests that mount disks or start engines of their own cannot run")
    backing.start()
    backing.prepare_sandbox()
    found = {"TOOLS_IMAGE": sandbox.build_tools_image(backing.environment()["DOCKER_HOST"])}
    try:
        found["CHROMIUM"] = chromium.browser()
    except Failed as problem:
        warn(f"{problem} Tests of pages in a browser are skipped (with CI set, they fail).")
    return found


def _run(module: tuple[str, ...], environment: dict[str, str], interrupts: Interrupts) -> int:
    child = children.start(
        [sys.executable, "-m", *module], env={**os.environ, **environment}, folder=REPOSITORY
    )
    backing_signals = 0
    while child.poll() is None:
        if interrupts.asked.wait(0.1) and backing_signals == 0:
            backing_signals += 1
            child.send_signal(signal.SIGINT)  # pytest then prints what it knows so far.
        if interrupts.hurry.is_set():
            children.kill_group(child)
    children.kill_group(child)
    return child.returncode
