"""The only way to change a pod's status: a guarded update and its event, in one transaction."""

from typing import Any

from django.db import transaction
from django.db.models import Q

from compute_site.core.db import ClockTimestamp
from compute_site.core.transitions import move
from providers.models import FINAL, TRANSITIONS, Pod, PodEvent


def record(pod_id: int, kind: str, message: str = "") -> None:
    """Append one event to a pod's history."""
    PodEvent.objects.create(pod_id=pod_id, kind=kind, message=message[:500])


def move_pod(
    pod: Pod, to: str, *, message: str = "", guard: Q | None = None, sources: Any = None, **fields: Any
) -> bool:
    """Move a pod to `to` if its state allows; True if this caller did it, and `pod` is then as its row."""
    if to in FINAL:
        fields.setdefault("finished_at", ClockTimestamp())
    with transaction.atomic():
        done = move(Pod, pod.pk, to, TRANSITIONS, guard=guard, sources=sources, **fields)
        if done:
            record(pod.pk, to, message)
    if done:
        pod.refresh_from_db()
    return done
