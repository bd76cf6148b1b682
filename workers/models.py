"""Workers: who runs the steps."""

from django.db import models
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import PublicModel
from environments.models import Engine, Slots


class WorkerStatus(models.TextChoices):
    ONLINE = "online", "online"
    DRAINING = "draining", "draining"
    STOPPED = "stopped", "stopped"
    LOST = "lost", "lost"


S = WorkerStatus
LIVE = frozenset({S.ONLINE, S.DRAINING})
TRANSITIONS: dict[str, frozenset[str]] = {
    S.ONLINE: frozenset({S.DRAINING, S.STOPPED, S.LOST}),
    S.DRAINING: frozenset({S.STOPPED, S.LOST}),
    S.STOPPED: frozenset(),
    S.LOST: frozenset(),
}


class Worker(PublicModel):
    """One worker process, pinned to one engine and its slots there. Back from lost is a new row.

    online → draining → stopped; lost is derived from the heartbeat by the database's clock and stored by a periodic
    pass, or at once when a newcomer on the same slots supersedes the row: then its leases are void.
    """

    engine = models.ForeignKey(Engine, on_delete=models.PROTECT, related_name="workers")
    slots = models.OneToOneField(Slots, on_delete=models.PROTECT, related_name="worker")
    status = models.CharField(max_length=16, choices=WorkerStatus, default=WorkerStatus.ONLINE)
    hostname = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=64, blank=True)
    started_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    heartbeat_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    ended_at = models.DateTimeField(null=True)
    superseded_by = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="worker_status_known", condition=in_list("status", WorkerStatus.values)
            ),
            models.CheckConstraint(
                name="worker_ended_exactly_when_ended",
                condition=Q(status__in=sorted(LIVE), ended_at__isnull=True)
                | Q(status__in=["lost", "stopped"], ended_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.engine.name}@{self.hostname}:{self.pid}"
