"""One line per step, with the seconds since the start, so that a long step is never a silent one."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

_started = time.monotonic()
_lock = threading.Lock()


class Failed(Exception):
    """Something the person at the terminal can repair; the message says how."""


def step(text: str) -> None:
    """Print one line about what happens now, with the seconds since this process began."""
    raw_line(f"[{time.monotonic() - _started:6.1f}s] {text}")


def warn(text: str) -> None:
    """Print one line that must not be overlooked."""
    raw_line(f"[{time.monotonic() - _started:6.1f}s] ** {text} **")


def raw_line(line: str) -> None:
    """Print a line as it is, whole, whichever thread or process prints beside us."""
    # One write call per line: several processes share this terminal.
    with _lock:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # The terminal may be gone; the work goes on.
            os.write(1, (line + "\n").encode())
