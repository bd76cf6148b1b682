"""The only way to change the status of a job or an attempt: a guarded update and its event."""

import json
from typing import Any

from django.db.models import Q

from compute_site.core.db import ClockTimestamp, prepared
from compute_site.core.transitions import move
from jobs.models import Attempt, Job
from jobs.models import attempt as attempt_states
from jobs.models import job as job_states

EVENT_SQL = (
    "INSERT INTO jobs_jobevent (job_id, attempt_id, kind, message, data) VALUES (%s, %s, %s, %s, %s::jsonb)"
)


def record_event(
    job_id: int, kind: str, message: str = "", *, attempt_id: int | None = None, **data: Any
) -> None:
    """Append one event to a job's history."""
    # As SQL: there are five in the life of a job, half a millisecond each.
    with prepared(EVENT_SQL, [job_id, attempt_id, kind, message[:2000], json.dumps(data)]):
        pass


def move_job(
    job_id: int,
    to: str,
    *,
    message: str = "",
    attempt_id: int | None = None,
    guard: Q | None = None,
    data: dict[str, Any] | None = None,
    **fields: Any,
) -> bool:
    """Move a job to `to` if its state allows; True if this caller did it. Final states set `finished_at`."""
    if to in job_states.FINAL:
        fields.setdefault("finished_at", ClockTimestamp())
        fields.setdefault("phase", "")
    done = move(Job, job_id, to, job_states.TRANSITIONS, guard=guard, **fields)
    if done:
        record_event(job_id, to, message, attempt_id=attempt_id, **(data or {}))
    return done


def move_attempt(
    attempt: Attempt,
    to: str,
    *,
    lease: Any = None,
    let_go: bool = False,
    guard: Q | None = None,
    **fields: Any,
) -> bool:
    """Move an attempt to `to` where its token (and `lease`, if given) still holds; True if this caller did it.

    `let_go` frees the step in the same statement.
    """
    if let_go:
        fields |= {"lease": None, "lease_worker": None, "lease_until": None}
    where = {"token": attempt.token} | ({"lease": lease} if lease is not None else {})
    if to in attempt_states.FINAL:
        fields.setdefault("finished_at", ClockTimestamp())
    return move(Attempt, attempt.pk, to, attempt_states.TRANSITIONS, where=where, guard=guard, **fields)
