"""Waiting for what another process does, with a limit."""

import time
from collections.abc import Callable

from compute_site.embedded.children import alive, wait_gone

__all__ = ["alive", "eventually", "gone"]


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int | None) -> bool:
    return pid is not None and wait_gone(pid, 10)
