"""What was asked and what came of it."""

from jobs.models.attempt import Attempt, AttemptStatus
from jobs.models.job import FINAL, IdempotencyKey, Job, JobStatus
from jobs.models.record import Artifact, JobEvent, LogChunk, Stream
from jobs.models.token import Token

__all__ = [
    "FINAL",
    "Artifact",
    "Attempt",
    "AttemptStatus",
    "IdempotencyKey",
    "Job",
    "JobEvent",
    "JobStatus",
    "LogChunk",
    "Stream",
    "Token",
]
