"""Who this process is: its worker row, its watcher, its heartbeat, and how many threads are at work."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import close_old_connections

from environments.models import Engine
from jobs.dispatch import knock
from workers import lifecycle
from workers.models import Worker
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


class Heartbeats:
    """The thread that says that the worker lives, and renews its leases."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
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
            except Exception:
                log.exception("heartbeat failed")
            finally:
                close_old_connections()


_here: Presence | None = None
_at_work = 0
_at_work_lock = threading.Lock()


def here() -> Presence | None:
    """This process's presence; None when it is not an engine's worker."""
    return _here


def arrive(engine: Engine) -> Presence:
    """Register this process as the engine's worker, begin to watch, and knock on the own door once."""
    global _here
    worker = lifecycle.register(engine)
    _here = Presence(engine, worker, Watcher(engine), Heartbeats(worker))
    lifecycle.heartbeat(worker)
    _here.heartbeats.start()
    _here.watcher.start()
    knock(engine)
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
    until = time.monotonic() + DRAIN_SECONDS
    while _at_work and time.monotonic() < until:
        time.sleep(0.05)
    _here.watcher.stop()
    _here.heartbeats.stop()
    lifecycle.stop(_here.worker)
    _here = None


@contextmanager
def busy() -> Iterator[None]:
    """Count the calling thread as one that is at work."""
    global _at_work
    with _at_work_lock:
        _at_work += 1
    try:
        yield
    finally:
        with _at_work_lock:
            _at_work -= 1
