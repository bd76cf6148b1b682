"""One process per folder: two sets of services over the same data would destroy them."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import IO

from .paths import made
from .progress import Failed


class FolderLock:
    """A lock on `folder/lock`, which names the process that holds it. The kernel frees it with its holder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file: IO[str] | None = None

    def take(self, seconds: float = 20.0) -> None:
        """Take it, or raise `Failed`. Waits up to `seconds` for a keeper that clears up after a dead holder."""
        file = (made(self.folder) / "lock").open("a+")
        deadline = time.monotonic() + seconds
        while not _try(file):
            if self.holder() or time.monotonic() > deadline:
                file.close()
                raise Failed(f"Another ./run uses {self.folder} already: stop it first (./run down).")
            time.sleep(0.1)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self.file = file

    def release(self) -> None:
        """Give it back. Safe to repeat."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def holder(self) -> int:
        """The living process that wrote its number into the lock, or 0."""
        try:
            pid = int((self.folder / "lock").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return 0
        return pid

    def end_holder(self, seconds: float = 90.0) -> bool:
        """Ask the holder to stop and wait until the lock is free; False when nobody held it."""
        path = self.folder / "lock"
        if not path.exists():
            return False
        with path.open("a+") as file:
            if _try(file):
                return False
            if pid := self.holder():
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + seconds
            while not _try(file):
                if time.monotonic() > deadline:
                    raise Failed(f"Process {pid} does not stop: look at it, then `kill -9 {pid}`.")
                time.sleep(0.1)
        return True


def _try(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
