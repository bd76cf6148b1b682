"""Ctrl-C, SIGTERM and SIGHUP as one thing: the first asks for an orderly stop, the second for a quick one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The first signal arrived inside `raising`; not an Exception, so that nothing swallows it."""


class Interrupts:
    """Takes the three signals from now on, in the main thread."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.hurry = threading.Event()
        self._raise = False
        for number in _SIGNALS:
            signal.signal(number, self._take)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises `Interrupted` at once: for work that would not look at a flag."""
        if self.asked.is_set():
            raise Interrupted
        self._raise = True
        try:
            yield
        finally:
            self._raise = False

    def _take(self, *_: object) -> None:
        if self.asked.is_set():
            self.hurry.set()
        self.asked.set()
        if self._raise:
            self._raise = False
            raise Interrupted
