"""Why a job does not run yet: computed from the rows of now, never guessed."""

import math
from datetime import datetime

from compute_site.core.db import database_now
from environments.slots import out_of_reach, read_reach
from environments.use import free_amounts
from jobs.caps import account_reason
from jobs.estimate import Estimates
from jobs.line import place_in_line
from jobs.models import Job, JobEvent, JobStatus
from jobs.obstacles import KEPT, Obstacles, place_reasons, start_reasons, time_text
from jobs.overdue import Kept

FOR_WORKERS = "waiting for workers"  # the phase of a job that the fleet has, but no remote worker yet
WAITS = "waits"  # the event that says what such a job waits for
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def pending_reason(job: Job, now: datetime | None = None) -> str | None:
    """What a job waits for, in words (`needs 2 cpu, 1 free; third in line`); None when it waits no more.

    `job` (saved or not) comes with its environment, engine and host. A job that the fleet has waits until remote
    workers have it.
    """
    if job.status == JobStatus.PREPARING and job.phase == FOR_WORKERS:
        return _told_by_the_fleet(job)
    if job.status != JobStatus.QUEUED:
        return None
    now = now or database_now()
    if job.not_before is not None and job.not_before > now:
        return f"retry after {time_text(job.not_before)}"
    if job.environment.engine.host is None:
        return account_reason(job.account_id) or next(place_reasons(job.environment, now))
    obstacles = Obstacles([job.environment], job.account_id, now)
    reasons = list(obstacles.of(job))
    place = place_in_line(job, now)
    if not reasons and obstacles.is_kept_from(job):
        reasons.append(KEPT)
    if not reasons and place == 1:
        return "first in line; about to start"
    return "; ".join([*reasons, f"{ordinal(place)} in line"])


def estimated_wait(job: Job, now: datetime | None = None) -> int | None:
    """Seconds until a queued job starts at the latest, as far as the deadlines of others tell; None when unknown."""
    if job.status != JobStatus.QUEUED:
        return None
    now = now or database_now()
    if any(start_reasons(job, now)) or account_reason(job.account_id):
        return None
    uses = free_amounts([job.environment])
    if out_of_reach(read_reach([job.environment_id])[job.environment_id], job.terms["resources"]):
        return None
    if Kept([job.environment.engine], now).would_miss(job, uses[job.environment_id]):
        return None
    wait = Estimates([job.environment], now, uses).of_job(job)
    later = (job.not_before - now).total_seconds() if job.not_before is not None else 0
    return None if wait is None else max(wait, math.ceil(later))


def _told_by_the_fleet(job: Job) -> str:
    """What its unit waited for when that changed last."""
    said = (
        JobEvent.objects.filter(job=job, kind=WAITS).order_by("pk").values_list("message", flat=True).last()
    )
    return said or FOR_WORKERS


def ordinal(number: int) -> str:
    """`first` to `tenth`, then digits: 11th, 21st, 22nd."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
