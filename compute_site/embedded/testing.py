"""`./run test`, `bench` and `chaos`: pytest against real services of its own, everything below .run/test."""

from __future__ import annotations

import os
import signal
import sys

from . import children
from .backing import Backing
from .interrupts import Interrupted, Interrupts
from .paths import REPOSITORY, RUN, Places
from .progress import Failed, step, warn


def test(arguments: list[str]) -> int:
    """Run the test suite with pytest's own arguments; returns pytest's exit code."""
    return _pytest(["--durations=5", *arguments])


def bench(arguments: list[str]) -> int:
    """Run the measurements in tests/bench; returns pytest's exit code."""
    return _pytest([*_folder("bench"), "-s", *arguments])


def chaos(arguments: list[str]) -> int:
    """Run the tests that kill and cut, in tests/chaos; returns pytest's exit code."""
    return _pytest([*_folder("chaos"), "-s", *arguments])


def _folder(name: str) -> list[str]:
    if not (REPOSITORY / "tests" / name).exists():
        raise Failed(f"tests/{name} is missing in this checkout.")
    return [f"tests/{name}"]


def _pytest(arguments: list[str]) -> int:
    interrupts = Interrupts()
    backing = Backing(Places(RUN / "test"), durable=False)
    try:
        with interrupts.raising():
            _start(backing)
        step(f"pytest {' '.join(arguments)}")
        return _run(arguments, backing.environment(), interrupts)
    except Interrupted:
        return 130
    finally:
        backing.stop(quiet=True)  # pytest's own last line stays the last one.


def _start(backing: Backing) -> None:
    if os.getuid() != 0:
        warn("not root: tests that mount disks or start engines of their own cannot run")
    backing.start()
    backing.prepare_sandbox()


def _run(arguments: list[str], environment: dict[str, str], interrupts: Interrupts) -> int:
    child = children.start(
        [sys.executable, "-m", "pytest", *arguments], env={**os.environ, **environment}, folder=REPOSITORY
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
