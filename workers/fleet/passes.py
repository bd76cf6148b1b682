"""The periodic pass: whatever the rows say is due is done, each row on its own; a second pass at once is harmless."""

import logging

from django.conf import settings
from django.db import transaction

from compute_site.core.db import database_now, lock
from workers.fleet import assignment, audits, registration
from workers.fleet.models import FleetPolicy, Unit
from workers.fleet.models.unit import UNIT_OPEN
from workers.fleet.reconciliation import reconcile

log = logging.getLogger(__name__)


def run_pass() -> None:
    """Stale workers, new units, lapsed and waiting replicas, units that can be judged, audits that have ended."""
    if not settings.FLEET_ENABLED:
        return
    registration.store_stale(database_now())
    assignment.make_units()
    for unit_id in list(
        Unit.objects.filter(status__in=UNIT_OPEN).order_by("pk").values_list("pk", flat=True)
    ):
        try:
            _attend(unit_id)
        except Exception:
            log.exception("unit %d: left for the next pass", unit_id)
    audits.judge_audits()


def _attend(unit_id: int) -> None:
    reconcile(unit_id, wait=False)  # first: what is cancelled or all in needs no worker
    with transaction.atomic():
        rows = lock(Unit.objects.filter(pk=unit_id, status__in=UNIT_OPEN), skip_locked=True)
        if not rows:
            return
        policy = FleetPolicy.objects.get(environment=rows[0].environment_id)
        assignment.assign(rows[0], policy, database_now())
    reconcile(unit_id, wait=False)  # a replica may have failed for good, or a degrade may have been enough
