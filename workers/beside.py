"""Work beside the steps, for what may take long: in threads of its own, once for all who wait for the same."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import timedelta
from typing import Generic, TypeVar

from django.db import close_old_connections

from compute_site.core.db import ClockTimestamp
from jobs.models import Attempt, Job
from workers.steps import Cancelled, Run

log = logging.getLogger(__name__)

Result = TypeVar("Result")
LOOK = 1.0  # seconds between two looks at the cancel flag


class Once(Generic[Result]):
    """Work that is under way in this process at most once for each key, in threads that nobody waits for at exit."""

    def __init__(self, at_once: int) -> None:
        """`at_once`: how many of all keys; the others wait."""
        self._room = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Result]] = {}

    def start(self, key: str, work: Callable[[], Result]) -> Future[Result]:
        """The work of this key that is under way, or a new one."""
        with self._lock:
            if key not in self._under_way:
                self._under_way[key] = Future()
                threading.Thread(target=self._do, args=(key, work), daemon=True).start()
            return self._under_way[key]

    def _do(self, key: str, work: Callable[[], Result]) -> None:
        future = self._under_way[key]
        try:
            with self._room:
                future.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is raised again where the result is awaited
            future.set_exception(error)
        finally:
            with self._lock:
                del self._under_way[key]
            close_old_connections()


def go_on_beside(run: Run, name: str, then: Callable[[Run], None]) -> None:
    """Go on with `then` in a thread of its own: no other step waits for it."""

    def go() -> None:
        try:
            then(run)
        except Exception:
            log.exception("attempt %s: a step beside the others failed", run.attempt.short_id)
        finally:
            close_old_connections()

    threading.Thread(target=go, name=f"{name}-{run.attempt.short_id}", daemon=True).start()


def allow_seconds(run: Run, seconds: float) -> None:
    """The step may take so long from now on."""
    rows = Attempt.objects.filter(pk=run.attempt.pk, lease=run.lease)
    rows.update(step_deadline=ClockTimestamp() + timedelta(seconds=seconds))


def wait_for(run: Run, work: Future[Result]) -> Result:
    """What the work came to, or raised. Raises Cancelled once a cancel was asked; the work goes on for others."""
    while True:
        try:
            return work.result(timeout=LOOK)
        except FutureTimeout:
            if work.done():  # it was the work's own
                raise
            stop_if_cancelled(run)


def stop_if_cancelled(run: Run) -> None:
    """Raises Cancelled if a cancel was asked."""
    if Job.objects.filter(pk=run.job.pk, cancel_requested_at__isnull=False).exists():
        raise Cancelled
