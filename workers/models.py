"""Workers: who runs the steps; and what they brought onto their engines."""

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


class ImageOrigin(models.TextChoices):
    PULLED = "pulled", "pulled"
    BUILT = "built", "built"
    LOADED = "loaded", "loaded from the cache"


class Image(models.Model):
    """An image that the site brought onto an engine. One that somebody else put there has no row, and is not ours.

    `last_used_at` moves whenever an attempt chooses the image. While `removing_until` lies ahead the image is being
    removed, and nobody may choose it. The row goes with the image.
    """

    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, related_name="images")
    image_id = models.CharField(max_length=128, help_text="The engine's id of it: the hash of its content.")
    references = models.JSONField(default=list, help_text="The names by which the site brought it, as asked.")
    origin = models.CharField(max_length=16, choices=ImageOrigin, help_text="How it came.")
    size = models.PositiveBigIntegerField(help_text="Bytes, layers that it shares with others included.")
    first_seen_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    last_used_at = models.DateTimeField(
        db_default=ClockTimestamp(),
        editable=False,
        help_text="When it came, or was last chosen by an attempt.",
    )
    removing_until = models.DateTimeField(
        null=True, editable=False, help_text="Set while it is removed: until then nobody chooses it."
    )

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["engine", "image_id"], name="image_once_per_engine"),
            models.CheckConstraint(
                name="image_origin_known", condition=in_list("origin", ImageOrigin.values)
            ),
        ]

    def __str__(self) -> str:
        return str(self.references[0]) if self.references else self.image_id[:19]


class Verdict(models.TextChoices):
    CLEAN = "clean", "clean"
    FINDINGS = "findings", "findings"
    FAILED = "failed", "failed"


class ImageScan(models.Model):
    """What the operator's scanner last said of an image on an engine, whoever brought the image there.

    A row beside the images, not in them: one of them would make an operator's image ours.
    """

    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, related_name="image_scans")
    image_id = models.CharField(max_length=128, help_text="The engine's id of it: the hash of its content.")
    reference = models.CharField(max_length=255, help_text="The name by which the job asked for it.")
    verdict = models.CharField(
        max_length=16, choices=Verdict, help_text="Failed: it was not scanned, and is at the next attempt."
    )
    said = models.TextField(blank=True, help_text="The last lines of the scanner.")
    scanned_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["engine", "image_id"], name="image_scan_once_per_engine"),
            models.CheckConstraint(
                name="image_scan_verdict_known", condition=in_list("verdict", Verdict.values)
            ),
        ]

    def __str__(self) -> str:
        return self.reference
