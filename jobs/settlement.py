"""Steps 9, 11 and 14: an attempt's exit is recorded once, and its job settled once or sent back to the queue."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from compute_site.core.db import database_now, lock_key
from compute_site.core.errors import TransitionRefused
from jobs.billing.models import Account
from jobs.dispatch import knock_on_commit
from jobs.end_reasons import END_REASONS
from jobs.endings import end_job
from jobs.models import Artifact, Attempt, AttemptStatus, Job, JobStatus
from jobs.outcome import Outcome
from jobs.terms import queue_expiry
from jobs.transitions import move_attempt, move_job

# A job whose starts kept getting lost is told so; other reasons of ours are told as they are.
EXHAUSTED = {"start_lost": "worker_lost_too_often"}


def record_exit(
    attempt: Attempt,
    *,
    facts: Mapping[str, Any],
    exit_code: int | None = None,
    started_at: datetime | None = None,
    exited_at: datetime | None = None,
    lease: UUID | None = None,
) -> bool:
    """Attempt and job → collecting, with the facts of the exit. Any watcher or sweep may: the first wins.

    Times are Docker's. False: the attempt is no longer before its exit, or token or lease are stale; nothing changed.
    """
    fields: dict[str, Any] = {"exit_facts": dict(facts), "exit_code": exit_code, "exited_at": exited_at}
    job_fields: dict[str, Any] = {"phase": ""}
    if started_at is not None:
        fields["started_at"] = job_fields["started_at"] = started_at
    with transaction.atomic():
        job = lock_key(Job, attempt.job_id)
        if not move_attempt(attempt, AttemptStatus.COLLECTING, lease=lease, **fields):
            return False
        if not move_job(job.pk, JobStatus.COLLECTING, attempt_id=attempt.pk, **job_fields):
            raise TransitionRefused(
                f"job {job} is {job.status}, but its attempt {attempt.number} was not final"
            )
    return True


def settle(attempt: Attempt, lease: UUID | None, outcome: Outcome) -> bool:
    """End the attempt and, with it, the job: final, or queued again when the fault was ours and attempts are left.

    Everything in one transaction, once: False when the attempt was settled before, or token or lease are stale
    (a lease of None is not compared: for sweeps); then nothing changed. A cancel request that is there by now means
    cancelled. A job that has a container running can only end by a fault of ours.
    """
    entry = END_REASONS[outcome.reason]
    ours = entry.blame == "site" and entry.status == "failed"
    return _finish(attempt, lease, AttemptStatus.FAILED if ours else AttemptStatus.SETTLED, outcome)


def abandon(
    attempt: Attempt, *, reason: str = "start_lost", detail: str = "", lease: UUID | None = None
) -> bool:
    """Give up a start that cannot be confirmed; its name is held by a tombstone of the caller's. Then as `settle`.

    False: it runs to its end after all, was settled, or token or lease are stale; nothing changed.
    """
    return _finish(attempt, lease, AttemptStatus.ABANDONED, Outcome(reason=reason, detail=detail))


def _finish(attempt: Attempt, lease: UUID | None, to: AttemptStatus, outcome: Outcome) -> bool:
    with transaction.atomic():
        job = lock_key(Job, attempt.job_id)
        current = lock_key(Attempt, attempt.pk)
        lock_key(Account, job.account_id)
        if job.is_final or current.token != attempt.token:
            return False
        cancelled = to == AttemptStatus.SETTLED and job.cancel_requested_at is not None
        reason = job.cancel_reason if cancelled else outcome.reason
        if not move_attempt(current, to, lease=lease, end_reason=reason, end_detail=outcome.detail[:4000]):
            return False
        _end_or_requeue(job, current, outcome)
    attempt.status = to
    return True


def _end_or_requeue(job: Job, attempt: Attempt, outcome: Outcome) -> None:
    """What the end of its attempt means for the job: the one place where retry, cancel and failure are weighed."""
    if job.cancel_requested_at is not None:
        _end(job, attempt, job.cancel_reason, outcome)
    elif not END_REASONS[outcome.reason].retryable:
        _end(job, attempt, outcome.reason, outcome)
    elif job.attempts_made >= job.max_attempts:
        _end(job, attempt, EXHAUSTED.get(outcome.reason, outcome.reason), outcome)
    else:
        _requeue(job, attempt, outcome)


def _end(job: Job, attempt: Attempt, reason: str, outcome: Outcome) -> None:
    done = end_job(
        job,
        reason,
        detail=outcome.detail,
        attempt_id=attempt.pk,
        billed_seconds=_billed_seconds(attempt, reason, outcome),
        exit_code=outcome.exit_code,
        run_seconds=outcome.run_seconds,
        started_at=attempt.started_at,
        usage=dict(outcome.usage),
        result=outcome.result,
        manifest=outcome.manifest,
        manifest_sha256=outcome.manifest_sha256,
        refused_outputs=list(outcome.refused),
    )
    if not done:
        raise TransitionRefused(f"a job that is {job.status} cannot end as {reason}")
    Artifact.objects.bulk_create(
        Artifact(job=job, attempt=attempt, path=file.path, size=file.size, sha256=file.sha256)
        for file in outcome.artifacts
    )


def _billed_seconds(attempt: Attempt, reason: str, outcome: Outcome) -> float | None:
    """The run time that is charged; None = nothing, since no container ran or the end is not the client's to pay.

    A cancelled job whose attempt failed by our fault meanwhile costs nothing either. A run of unknown length counts
    as the shortest.
    """
    billable = END_REASONS[reason].billable and END_REASONS[outcome.reason].billable
    if not billable or (attempt.started_at is None and outcome.run_seconds is None):
        return None
    return outcome.run_seconds or 0.0


def _requeue(job: Job, attempt: Attempt, outcome: Outcome) -> None:
    """Back to the queue with a growing pause; the wait in the queue is counted anew from its end."""
    pause = timedelta(seconds=settings.RETRY_BACKOFF_SECONDS * 2 ** max(job.attempts_made - 1, 0))
    not_before = database_now() + pause
    done = move_job(
        job.pk,
        JobStatus.QUEUED,
        message=f"{END_REASONS[outcome.reason].message} It will be tried again.",
        attempt_id=attempt.pk,
        data={"reason": outcome.reason},
        phase="",
        started_at=None,
        passed_over_since=None,
        not_before=not_before,
        queue_expires_at=queue_expiry(job.terms, not_before),
    )
    if not done:
        raise TransitionRefused(f"a job that is {job.status} cannot be queued again")
    knock_on_commit(job.environment.engine)
