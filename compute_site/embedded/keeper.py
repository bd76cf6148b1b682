"""A small process that outlives a kill -9 of its parent just long enough to clear up after it.

Our direct children die with us by the kernel's own hand. Theirs do not, and neither do an engine's containers
and shims, which are meant to outlive their daemon: the keeper ends those.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from .dockerd import PrivateEngine
from .paths import REPOSITORY


class Keeper:
    """Our end of a pipe: the keeper waits while it is open, and acts when it closes without `dismiss`."""

    def __init__(self, lock: IO[Any] | None = None) -> None:
        """Start the keeper; it holds `lock` until it is done, so that a next start waits for it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            cwd=REPOSITORY,
            start_new_session=True,
            pass_fds=[lock.fileno()] if lock is not None else [],
        )

    def watch_engine(self, engine: PrivateEngine) -> None:
        """Clear this engine away if we die."""
        self._tell("engine", str(engine.folder), engine.name, str(engine.run_folder.parent), engine.site)

    def watch_group(self, group: int) -> None:
        """Kill this process group if we die."""
        self._tell("group", str(group))

    def forget_group(self, group: int) -> None:
        """The group has ended; its number may be somebody else's soon."""
        self._tell("forget", str(group))

    def dismiss(self) -> None:
        """End the keeper without any clearing: everything was stopped in order. Safe to repeat."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._tell("done")
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write("\t".join(words).encode() + b"\n")
            self._process.stdin.flush()


def _main() -> None:
    for quiet in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(quiet, signal.SIG_IGN)
    engines: list[PrivateEngine] = []
    groups: set[int] = set()
    for line in sys.stdin:
        kind, *words = line.rstrip("\n").split("\t")
        if kind == "done":
            return
        if kind == "engine":
            engines.append(PrivateEngine(Path(words[0]), words[1], sockets=Path(words[2]), site=words[3]))
        elif kind == "group":
            groups.add(int(words[0]))
        else:
            groups.discard(int(words[0]))
    _clear(engines, groups)


def _clear(engines: list[PrivateEngine], groups: set[int]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    # The daemons got their own signal when we died: let them write down what they know.
    deadline = time.monotonic() + 5
    while any(engine.ready() for engine in engines) and time.monotonic() < deadline:
        time.sleep(0.1)
    for engine in engines:
        engine.clear()


if __name__ == "__main__":
    _main()
