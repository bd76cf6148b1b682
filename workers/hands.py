"""The threads that do the steps of an engine's worker: whoever is asked looks for one thing to do, and does it."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections, transaction

from environments.models import Engine
from jobs.dispatch import knock

log = logging.getLogger(__name__)


class Hands:
    """A few threads that call `look` when they are asked. At most one that was asked has not begun yet.

    Nobody begins before `open`: what starts before the watcher listens could end unseen.
    """

    def __init__(
        self, threads: int, look: Callable[[], object], tell_peers: Callable[[], None] = lambda: None
    ) -> None:
        """`threads`: how many may be at work at once. `tell_peers` passes on what may be for another worker."""
        self._look = look
        self.tell_peers = tell_peers
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="step")
        self._lock = threading.Lock()
        self._asked = False
        self._opened = False
        self._stopped = False
        self._at_work = 0

    def ask(self) -> None:
        """Have somebody look soon. Whoever was asked and has not begun will see all that is there by then: one is enough."""
        with self._lock:
            if self._asked or self._stopped:
                return
            self._asked = True
            if self._opened:
                self._pool.submit(self._go)

    def open(self) -> None:
        """Let them begin, first of all whoever was asked until now. Safe to repeat."""
        with self._lock:
            if self._asked and not self._opened and not self._stopped:
                self._pool.submit(self._go)
            self._opened = True

    def stop(self, seconds: float) -> bool:
        """Nobody begins from now on; wait for those who are at work. False when they need more than `seconds`."""
        with self._lock:
            self._stopped = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + seconds
        while self._at_work and time.monotonic() < until:
            time.sleep(0.05)
        return not self._at_work

    def _go(self) -> None:
        with self._lock:
            self._asked = False
            if self._stopped:
                return
            self._at_work += 1
        try:
            self._look()
        except Exception:
            log.exception("a step failed")
        finally:
            close_old_connections()  # gives the connection back
            with self._lock:
                self._at_work -= 1


_own: dict[int, Hands] = {}  # by engine, of this process


def take_on(engine: Engine, hands: Hands) -> None:
    """From now on nudges for the engine stay in this process."""
    _own[engine.pk] = hands


def lay_down(engine: Engine) -> None:
    """Nudges for the engine are knocks again."""
    _own.pop(engine.pk, None)


def nudge(engine: Engine) -> None:
    """There is something to do on the engine. In its own worker a thread is asked; anywhere else it is a knock."""
    hands = _own.get(engine.pk)
    if hands is not None:
        hands.ask()
    else:
        knock(engine)


def nudge_all_on_commit(engine: Engine) -> None:
    """Room came free, for whichever worker of the engine can use it: nudge once the surrounding transaction is
    committed (at once when there is none).
    """
    transaction.on_commit(lambda: _nudge_all(engine))


def _nudge_all(engine: Engine) -> None:
    nudge(engine)
    if (hands := _own.get(engine.pk)) is not None:
        hands.tell_peers()
