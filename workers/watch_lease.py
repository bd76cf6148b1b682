"""Who watches an engine: one of its workers at a time, by a lease on the engine's row."""

from time import monotonic

from compute_site.core.db import first_row
from workers.models import LIVE, Worker

LEASE_SECONDS = 5.0  # how long an engine may be unwatched after its watching worker was killed
STANDBY_SECONDS = 1.0  # between two looks of the others

# The watch of a worker that ended is void, whatever its lease says; a worker that ended cannot take it.
TAKE_SQL = """
    UPDATE environments_engine SET
           watcher = %(worker)s, watched_until = clock_timestamp() + make_interval(secs => %(seconds)s)
     WHERE id = %(engine)s
       AND EXISTS (SELECT FROM workers_worker w WHERE w.id = %(worker)s AND w.status = ANY(%(live)s))
       AND (watcher IS NULL OR watcher = %(worker)s OR watched_until < clock_timestamp()
            OR NOT EXISTS (SELECT FROM workers_worker w
                            WHERE w.id = environments_engine.watcher AND w.status = ANY(%(live)s)))
    RETURNING id
"""


class WatchLease:
    """One worker's share in the watch of its engine. Used by the watcher's thread alone."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._held = False
        self._ask_at = 0.0

    def held(self) -> bool:
        """Whether this worker watches now. Takes or renews the lease when it is time to; else no statement is made."""
        if monotonic() >= self._ask_at:
            self._held = self._take()
            self._ask_at = monotonic() + (LEASE_SECONDS / 2 if self._held else STANDBY_SECONDS)
        return self._held

    def _take(self) -> bool:
        values = {
            "worker": self.worker.pk,
            "engine": self.worker.engine_id,
            "seconds": LEASE_SECONDS,
            "live": sorted(LIVE),
        }
        return first_row(TAKE_SQL, values) is not None
