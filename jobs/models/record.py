"""What is kept of a job: events, log bytes, artifacts."""

from django.db import models

from compute_site.core.db import ClockTimestamp, in_list
from jobs.models.attempt import Attempt
from jobs.models.job import Job


class JobEvent(models.Model):
    """One thing that happened to a job, in order. Append-only."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="events")
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, null=True, related_name="events")
    kind = models.CharField(max_length=40, help_text="The status or phase reached, or what happened.")
    message = models.TextField(blank=True)
    data = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.kind


class Stream(models.TextChoices):
    STDOUT = "stdout", "stdout"
    STDERR = "stderr", "stderr"


class LogChunk(models.Model):
    """A run of log bytes of one stream, exactly as written, at its offset. Shipped by the watcher."""

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="log_chunks")
    stream = models.CharField(max_length=8, choices=Stream)
    offset = models.PositiveBigIntegerField()
    data = models.BinaryField()
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "stream", "offset"], name="log_chunk_once"),
            models.CheckConstraint(name="log_chunk_stream_known", condition=in_list("stream", Stream.values)),
        ]

    def __str__(self) -> str:
        return f"{self.stream}@{self.offset}"


class Artifact(models.Model):
    """One output file, stored by its content: `storage_key` is derived from the sha256."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="artifacts")
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="artifacts")
    path = models.CharField(
        max_length=4096, help_text="Path below /data/outputs; data, never a path of ours."
    )
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ["path"]
        constraints = [models.UniqueConstraint(fields=["job", "path"], name="artifact_path_once_per_job")]
        indexes = [models.Index(fields=["sha256"], name="artifact_sha256")]

    def __str__(self) -> str:
        return self.path
