"""The only way to change the status of a remote worker, a unit, a replica or an audit: one guarded update each."""

from typing import Any

from django.db.models import Q

from compute_site.core.db import ClockTimestamp
from compute_site.core.transitions import move
from workers.fleet.models import Audit, RemoteStatus, RemoteWorker, Replica, Unit
from workers.fleet.models import owner as owner_states
from workers.fleet.models import unit as unit_states


def move_worker(worker_id: int, to: str, *, guard: Q | None = None, **fields: Any) -> bool:
    """Move a remote worker; True if this caller did it. Retiring sets `retired_at`."""
    if to == RemoteStatus.RETIRED:
        fields.setdefault("retired_at", ClockTimestamp())
    return move(RemoteWorker, worker_id, to, owner_states.TRANSITIONS, guard=guard, **fields)


def move_unit(unit_id: int, to: str, **fields: Any) -> bool:
    """Move a unit; True if this caller did it. Final states set `finished_at`."""
    if to in unit_states.UNIT_FINAL:
        fields.setdefault("finished_at", ClockTimestamp())
    return move(Unit, unit_id, to, unit_states.UNIT_TRANSITIONS, **fields)


def move_replica(replica: Replica, to: str, **fields: Any) -> bool:
    """Move a replica where its token still holds; True if this caller did it. Final states set `finished_at`."""
    if to not in unit_states.REPLICA_OPEN:
        fields.setdefault("finished_at", ClockTimestamp())
    guard = Q(token=replica.token)
    return move(Replica, replica.pk, to, unit_states.REPLICA_TRANSITIONS, guard=guard, **fields)


def move_audit(audit_id: int, to: str, **fields: Any) -> bool:
    """Move an audit to its outcome, once."""
    return move(Audit, audit_id, to, unit_states.AUDIT_TRANSITIONS, finished_at=ClockTimestamp(), **fields)
