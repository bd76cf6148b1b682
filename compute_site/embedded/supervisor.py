"""Runs the site's processes in one terminal: prefixed output, ordered start, ordered stop, no orphans."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import children
from .keeper import Keeper
from .processes import Process
from .progress import Failed, raw_line, step

_COLOURS = (36, 33, 32, 35, 34, 31)


class Supervisor:
    """Children with names. Use it from the main thread: the kernel kills them when that thread ends."""

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        keeper: Keeper | None = None,
        log: Path | None = None,
    ) -> None:
        """`log`: a file that takes the processes' lines in the place of the terminal."""
        self._log = log.open("ab", buffering=0) if log is not None else None
        self._lines = f"see {log}" if log is not None else "see its lines above"
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._folder = folder
        self._keeper = keeper
        self._known: dict[str, Process] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: dict[str, threading.Thread] = {}
        self._colours: dict[str, int] = {}

    def run_to_end(self, process: Process) -> None:
        """Run a preparation; raises `Failed` when it does not end with 0."""
        self._launch(process)
        code = self._running[process.name].wait()
        self._forget(process.name)
        if code != 0:
            raise Failed(f"{process.name} ended with code {code}: {self._lines}.")

    def start(self, process: Process) -> None:
        """Start one and wait until it is ready; raises `Failed` when it ends before that."""
        self._launch(process)
        if process.ready is not None:
            child = self._running[process.name]
            children.wait_until(
                process.ready, child, process.ready_seconds, f"{process.name} did not start, {self._lines}"
            )

    def pid(self, name: str) -> int | None:
        """The process id of one that runs, else None."""
        child = self._running.get(name)
        return child.pid if child is not None and child.poll() is None else None

    def signal(self, name: str, number: int) -> None:
        """Send a signal to one of them."""
        self._running[name].send_signal(number)

    def restart(self, name: str) -> None:
        """Stop one in its own time and start it again."""
        self._stop_group([name])
        self.start(self._known[name])

    def ended(self) -> dict[str, int]:
        """Those that ended by themselves, with their exit codes."""
        codes = {name: child.poll() for name, child in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def check(self) -> None:
        """Raise `Failed` when one of them has ended by itself."""
        for name, code in self.ended().items():
            raise Failed(f"{name} ended by itself with code {code}: {self._lines}.")

    def stop(self, hurry: threading.Event | None = None) -> None:
        """Stop all, rank by rank, each rank drained before the next hears of it. Safe to repeat.

        When `hurry` is set (a second Ctrl-C) the rest is killed at once.
        """
        by_rank = sorted(self._running, key=lambda name: self._known[name].stop_rank)
        for _, names in itertools.groupby(by_rank, key=lambda name: self._known[name].stop_rank):
            self._stop_group(list(names), hurry)

    def _launch(self, process: Process) -> None:
        if self.pid(process.name) is not None:
            raise Failed(f"{process.name} runs already.")
        self._forget(process.name)
        child = children.start(
            process.argv, env=self._environment, output=subprocess.PIPE, folder=self._folder
        )
        self._known[process.name] = process
        self._running[process.name] = child
        if self._keeper is not None:
            self._keeper.watch_group(child.pid)
        reader = threading.Thread(target=self._relay, args=(process.name, child), daemon=True)
        self._readers[process.name] = reader
        reader.start()

    def _relay(self, name: str, child: subprocess.Popen[bytes]) -> None:
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        prefix = f"{name:<8}| "
        if self._log is None and sys.stdout.isatty():
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        assert child.stdout is not None
        for line in child.stdout:
            text = prefix + line.decode(errors="replace").rstrip("\n")
            if self._log is None:
                raw_line(text)
            else:
                self._log.write(f"{text}\n".encode())

    def _stop_group(self, names: Iterable[str], hurry: threading.Event | None = None) -> None:
        names = list(names)
        for name in names:
            if self.pid(name) is not None:
                step(f"{name}: stopping")
                self.signal(name, signal.SIGTERM)
        deadlines = {name: time.monotonic() + self._known[name].stop_seconds for name in names}
        while waiting := [name for name in names if self.pid(name) is not None]:
            for name in waiting:
                if time.monotonic() > deadlines[name] or (hurry is not None and hurry.is_set()):
                    step(f"{name}: did not stop in time, killed")
                    children.kill_group(self._running[name])
            time.sleep(0.02)
        for name in names:
            self._forget(name)

    def _forget(self, name: str) -> None:
        child = self._running.pop(name, None)
        if child is None:
            return
        children.kill_group(child)  # What it left behind in its session.
        child.wait()
        self._readers.pop(name).join(timeout=2)
        if self._keeper is not None:
            self._keeper.forget_group(child.pid)
