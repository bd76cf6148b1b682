"""Step 8: stop a running container. The reason is written before the first signal, and the first reason wins."""

import logging
from datetime import datetime, timedelta

from django.conf import settings

from compute_site.core.db import ClockTimestamp
from jobs.models import Attempt, AttemptStatus
from workers.checkpoint import checkpoint
from workers.engines import Connection

log = logging.getLogger(__name__)

KILL_MARGIN = (
    3.0  # seconds after the grace, in which the launcher ends the job by itself and writes its marker
)


def request_stop(attempt: Attempt, reason: str) -> bool:
    """Write why the attempt is stopped, unless a reason stands there already. True if this caller's stands."""
    rows = Attempt.objects.filter(pk=attempt.pk, status=AttemptStatus.RUNNING, stop_reason="")
    won = rows.update(stop_reason=reason) == 1
    if won:
        attempt.stop_reason = reason
        checkpoint("stop.before")
    return won


def send_signal(connection: Connection, attempt: Attempt, now: datetime) -> None:
    """TERM first, KILL after the grace, again and again until the container is seen exited. Any watcher may."""
    first = attempt.stop_signalled_at
    grace = timedelta(seconds=settings.STOP_GRACE_SECONDS + KILL_MARGIN)
    if first is None:
        connection.client.signal(attempt.container_id, "TERM")
        Attempt.objects.filter(pk=attempt.pk, stop_signalled_at__isnull=True).update(
            stop_signalled_at=ClockTimestamp()
        )
        checkpoint("stop.after")
    elif now > first + grace:
        log.warning("attempt %s: still running after TERM, killed", attempt.short_id)
        connection.client.signal(attempt.container_id, "KILL")
