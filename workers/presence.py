"""Who this process is: its worker row, its watcher, its heartbeat, and its hands."""

import logging
import os
import signal
import threading
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import close_old_connections

from compute_site.core.pulse import pulse
from environments.models import Engine, SlotSet
from workers import lifecycle
from workers.hands import Hands, lay_down, take_on
from workers.models import Worker
from workers.peers import Peers
from workers.runner import work
from workers.watch_lease import WatchLease
from workers.watcher import Watcher

log = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0  # how long a stop waits for the steps at work


@dataclass(frozen=True)
class Presence:
    """A worker process on duty."""

    engine: Engine
    worker: Worker
    watcher: Watcher
    heartbeats: "Heartbeats"
    hands: Hands
    peers: Peers


class Heartbeats:
    """The thread that says that the worker lives, renews its leases, and has somebody look for what nobody told of."""

    def __init__(self, worker: Worker, hands: Hands) -> None:
        self.worker = worker
        self.hands = hands
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Fall silent."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.wait(min(settings.WORKER_TTL_SECONDS, settings.STEP_LEASE_SECONDS) / 4):
            try:
                if not lifecycle.heartbeat(self.worker):
                    log.error("this worker was superseded or given up as lost: it stops")
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                self.hands.ask()  # a lease that has lapsed; knocks that were lost while the broker was away
                pulse()
            except Exception:
                log.exception("heartbeat failed")
            finally:
                close_old_connections()


_here: Presence | None = None


def here() -> Presence | None:
    """This process's presence; None when it is not an engine's worker."""
    return _here


def arrive(engine: Engine, slots: SlotSet, threads: int) -> Presence:
    """Register this process as a worker of the engine, begin to watch, and look what there is; `threads` steps at once.

    Raises SlotsTaken.
    """
    global _here
    worker = lifecycle.register(engine, slots)
    peers = Peers(worker.slots)
    hands = Hands(threads, partial(work, engine, worker), peers.tell)
    watcher = Watcher(engine, hands.open, WatchLease(worker).held)
    _here = Presence(engine, worker, watcher, Heartbeats(worker, hands), hands, peers)
    lifecycle.heartbeat(worker)
    peers.start()
    _here.heartbeats.start()
    take_on(engine, hands)
    _here.watcher.start()
    hands.ask()
    return _here


def drain() -> None:
    """Take nothing new from now on."""
    if _here is not None:
        lifecycle.drain(_here.worker)


def leave() -> None:
    """Wait for the steps at work, then stop watching and let go of everything. Running containers go on."""
    global _here
    if _here is None:
        return
    _here.hands.stop(DRAIN_SECONDS)
    _here.watcher.stop()
    _here.heartbeats.stop()
    lay_down(_here.engine)
    lifecycle.stop(_here.worker)
    _here.peers.stop()
    _here = None
