"""Reclaim: what ran on a host that an operator declared gone ends, and its claims are released."""

import logging

from django.db import transaction

from compute_site.core.db import ClockTimestamp
from environments import reservations
from environments.models import Host
from jobs.models import Attempt
from jobs.models.attempt import UNFINISHED
from jobs.outcome import Outcome
from jobs.settlement import settle

log = logging.getLogger(__name__)


def reclaim_gone_hosts() -> int:
    """End every attempt on hosts declared gone as engine_lost and release what it held; returns how many. Repeatable."""
    done = 0
    for host in Host.objects.filter(declared_gone_at__isnull=False):
        for attempt in Attempt.objects.filter(engine__host=host, cleaned_at__isnull=True).select_related(
            "job"
        ):
            if attempt.status in UNFINISHED:
                settle(attempt, None, Outcome(reason="engine_lost", detail="its host was declared gone"))
            _release(host, attempt)
            done += 1
    return done


def _release(host: Host, attempt: Attempt) -> None:
    """The machine is gone, so everything on it is: the only way to release without seeing the container gone."""
    with transaction.atomic():
        reservations.lock_host(host.pk)
        reservations.release_rest(attempt.public_id, never_started=True)
        Attempt.objects.filter(pk=attempt.pk, cleaned_at__isnull=True).update(cleaned_at=ClockTimestamp())
    log.warning("attempt %s reclaimed: host %s was declared gone", attempt.short_id, host.name)
