"""Claim a step of an attempt: whoever hears a knock takes what nobody holds. The same attempt, never a second one."""

from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection

from compute_site.core.db import read_key, rows_of
from jobs.models import Attempt, Job
from workers.engines import Connection
from workers.models import Worker
from workers.steps import Run

STEP_SECONDS = 1800.0  # a lease is never renewed beyond this: large outputs take their time
LOST_TRIES = 3  # a step that cost this many workers their life is not tried again

# Attempts that need a step and whose step nobody holds. Running ones are the watcher's. Ends before beginnings, so
# that resources come back first; rows that somebody is just claiming are passed by.
CLAIM_SQL = """
    UPDATE jobs_attempt SET
           lease = %(lease)s, lease_worker = %(worker)s,
           lease_until = clock_timestamp() + make_interval(secs => %(ttl)s),
           step_deadline = clock_timestamp() + make_interval(secs => %(deadline)s)
     WHERE id = (
        SELECT id FROM jobs_attempt
         WHERE engine_id = %(engine)s AND cleaned_at IS NULL AND status <> 'running'
           AND (not_before IS NULL OR not_before <= clock_timestamp())
           AND (lease IS NULL OR lease_until < clock_timestamp())
         ORDER BY status IN ('preparing', 'created', 'starting'), status <> 'collecting', id
         LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING {columns}
"""


def claim_step(link: Connection, worker: Worker) -> Run | None:
    """Lease the next step of any attempt of the engine to `worker`; None when there is none to do."""
    lease = uuid4()
    values = {
        "lease": lease,
        "worker": worker.pk,
        "ttl": settings.STEP_LEASE_SECONDS,
        "deadline": STEP_SECONDS,
        "engine": link.engine.pk,
    }
    claimed = rows_of(Attempt, CLAIM_SQL, values)
    return _run(claimed[0], lease, link) if claimed else None


def load(attempt_id: int, lease: UUID, link: Connection) -> Run:
    """The run of a leased attempt, read fresh."""
    return _run(Attempt.objects.get(pk=attempt_id), lease, link)


def _run(attempt: Attempt, lease: UUID, link: Connection) -> Run:
    attempt.job = read_key(Job, attempt.job_id)
    return Run(attempt, attempt.job, lease, link)


def give_back(run: Run, *, after: float = 0.0, tried: bool = False, leftover: str = "") -> None:
    """Let go of the step: the next try may be made in `after` seconds. `tried` counts it as a failed one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_attempt SET lease = NULL, lease_worker = NULL, lease_until = NULL,"
            " not_before = clock_timestamp() + make_interval(secs => %s),"
            " step_tries = step_tries + %s, leftover = %s"
            " WHERE id = %s AND lease = %s",
            [after, int(tried), leftover[:2000], run.attempt.pk, run.lease],
        )
