"""Step 2, take: lock the host, read what is in use, choose the next job that fits, reserve. One transaction."""

import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from compute_site.core.db import all_rows, first_row, read_key, rows_of
from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import new_public_id
from environments import reservations
from environments.models import Engine, EngineState, Environment, EnvironmentState, Tier
from environments.models.slots import multirange
from environments.slots import REACH_SQL, out_of_reach
from jobs.models import Attempt, Job, JobStatus
from jobs.transitions import move_job
from workers.checkpoint import checkpoint
from workers.lifecycle import new_lease
from workers.models import Worker, WorkerStatus
from workers.sandbox.spec import container_name

log = logging.getLogger(__name__)

CANDIDATES = 32  # how many queued jobs of one environment and tier one pass looks at
PREPARE_SECONDS = 300.0

# Queued jobs of one engine whose turn it may be: first in first out per environment and tier, paid before free. So many
# of each, that a long queue which does not fit hides no other. An environment without a free core can start nothing,
# so its queue is not even read. An account at its cap waits; two engines that take at once may pass it by one.
CANDIDATES_SQL = """
    WITH full_account AS MATERIALIZED (
        SELECT account_id FROM jobs_job WHERE status IN ('preparing', 'running', 'collecting')
         GROUP BY account_id HAVING count(*) >= %(cap)s){reach}
    SELECT j.id, j.reachable
      FROM environments_environment e
     CROSS JOIN (VALUES ('paid'), ('free')) t (tier)
     CROSS JOIN LATERAL (
        SELECT q.id, {reachable} AS reachable FROM jobs_job q
         WHERE q.environment_id = e.id AND q.tier = t.tier
           AND q.status = 'queued' AND q.cancel_requested_at IS NULL
           AND (q.not_before IS NULL OR q.not_before <= clock_timestamp())
           AND (q.queue_expires_at IS NULL OR q.queue_expires_at > clock_timestamp())
           AND q.account_id NOT IN (SELECT account_id FROM full_account){only}
         ORDER BY q.id LIMIT %(limit)s) j
     WHERE e.engine_id = %(engine)s AND e.state <> %(retired)s
       AND EXISTS (
           SELECT FROM environments_core c
            WHERE c.environment_id = e.id{among}
              AND NOT EXISTS (SELECT FROM environments_reservedcore r WHERE r.core_id = c.id AND r.released_at IS NULL))
     ORDER BY (t.tier = 'free'), j.id
"""
FOR_ALL_SQL = CANDIDATES_SQL.format(reach="", reachable="true", only="", among="")
# A worker of narrower slots passes by, without a word, what it could never take: those jobs wait for another worker, and
# neither fill its list nor close its queue. Only of one that has waited too long it is told, to leave it room.
REACHABLE = """NOT EXISTS (
               SELECT FROM reach WHERE reach.environment_id = e.id
                  AND reach.most < (q.terms->'resources'->>reach.slug)::bigint)"""
FOR_SLOTS_SQL = CANDIDATES_SQL.format(
    reach=f", reach AS MATERIALIZED ({REACH_SQL.format(choice='s.id = %(slots)s')})",
    reachable=REACHABLE,
    only=f"""
           AND ({REACHABLE} OR %(others)s
                AND q.passed_over_since <= clock_timestamp() - make_interval(secs => %(bypass)s))""",
    among=" AND c.index::bigint <@ %(cores)s::int8multirange",
)

LOCKED_SQL = """
    SELECT {columns} FROM {table} WHERE id = %s AND status = 'queued' AND cancel_requested_at IS NULL
       FOR NO KEY UPDATE SKIP LOCKED
"""
MAY_START_SQL = """
    SELECT g.state, w.status FROM environments_engine g, workers_worker w WHERE w.id = %s AND g.id = %s
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that was just reserved for this worker. `more`: others wait whose turn may have come too."""

    attempt: Attempt
    more: bool


def take(engine: Engine, worker: Worker) -> Taken | None:
    """Reserve the next job that fits the worker's slots and make its attempt (preparing, leased to `worker`); None when
    none does.

    Before: job queued. After: job preparing, attempt preparing, reservation held; or nothing changed at all.
    """
    if not _candidates(worker, 1):
        return None
    checkpoint("take.before")
    with transaction.atomic():
        assert engine.host_id is not None
        host = reservations.lock_host(engine.host_id)
        if host.declared_gone_at or not _may_start(engine, worker):
            return None
        taken = _first_that_fits(engine, worker, _candidates(worker, CANDIDATES, others=True))
    checkpoint("take.after")
    return taken


def _may_start(engine: Engine, worker: Worker) -> bool:
    """Engine active and this worker online: read after the host's lock."""
    return first_row(MAY_START_SQL, [worker.pk, engine.pk]) == (EngineState.ACTIVE, WorkerStatus.ONLINE)


def _candidates(worker: Worker, limit: int, *, others: bool = False) -> list[tuple[int, bool]]:
    """Ids of jobs, in their order, each with whether this worker could ever take it; `others`: also those that it
    could not and that have waited too long.
    """
    values = {
        "engine": worker.engine_id,
        "retired": EnvironmentState.RETIRED,
        "limit": limit,
        "cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT,
    }
    if worker.slots.cores is None:
        return all_rows(FOR_ALL_SQL, values)
    cores = multirange(worker.slots.cores)
    narrower = {
        "slots": worker.slots_id,
        "cores": cores,
        "others": others,
        "bypass": settings.MAX_BYPASS_SECONDS,
    }
    return all_rows(FOR_SLOTS_SQL, {**values, **narrower})


def _first_that_fits(engine: Engine, worker: Worker, candidates: list[tuple[int, bool]]) -> Taken | None:
    """Try each candidate within a savepoint of its own; an environment whose first job waited too long is closed to the
    rest: its resources are held for that job. Paid jobs do not wait for a free one.

    A job that only another worker's slots can take is left the memory and the like that all share, but no core.
    """
    closed: set[tuple[int, str]] = set()
    seen: set[tuple[int, str]] = set()
    promised: list[Job] = []
    for position, (job_id, reachable) in enumerate(candidates):
        job = _locked(job_id)
        if job is None or (job.environment_id, job.tier) in closed:
            continue
        queue = (job.environment_id, job.tier)
        if not reachable:
            if out_of_reach(job.environment, job.terms["resources"]) is None:
                promised.append(job)
            continue
        try:
            attempt = _reserve(engine, worker, job, promised)
        except CapacityUnavailable:
            if queue not in seen and _note_passed_over(job):
                closed |= {queue, (job.environment_id, Tier.FREE.value)}
            seen.add(queue)
            continue
        return Taken(attempt, more=position + 1 < len(candidates))
    return None


def _locked(job_id: int) -> Job | None:
    rows = rows_of(Job, LOCKED_SQL, [job_id])
    if not rows:
        return None
    rows[0].environment = read_key(Environment, rows[0].environment_id)
    return rows[0]


def _reserve(engine: Engine, worker: Worker, job: Job, promised: list[Job]) -> Attempt:
    """Claim and attempt in a savepoint: raises CapacityUnavailable and leaves nothing behind when it does not fit, or
    leaves a promised job no room.
    """
    holder = new_public_id()
    with transaction.atomic():
        claim = reservations.acquire(
            holder=holder,
            environment=job.environment,
            tier=job.tier,
            amounts=job.terms["resources"],
            uid_range=settings.UID_RANGE,
            slots=worker.slots.members,
        )
        for other in promised:
            if other.environment_id == job.environment_id:
                reservations.check_room(other.environment, other.tier, other.terms["resources"])
        attempt = _make_attempt(engine, worker, job, holder, claim)
        move_job(
            job.pk,
            JobStatus.PREPARING,
            attempt_id=attempt.pk,
            data={"attempt": attempt.number, "cores": list(claim.cores), "devices": list(claim.devices)},
            attempts_made=job.attempts_made + 1,  # read with the lock on its row
            passed_over_since=None,
            not_before=None,
            phase="workspace",
        )
    return attempt


def _make_attempt(
    engine: Engine, worker: Worker, job: Job, holder: UUID, claim: reservations.Claim
) -> Attempt:
    lease: dict[str, Any] = new_lease(worker, PREPARE_SECONDS)
    attempt = Attempt(
        public_id=holder,
        job=job,
        number=job.attempts_made + 1,
        engine=engine,
        uid=claim.uid,
        cores=list(claim.cores),
        device_uuids=list(claim.devices),
        container_name=container_name(settings.SITE_ID, str(holder)),
        image_id=job.image_id,
        **lease,
    )
    attempt.save(force_insert=True)
    return attempt


def _note_passed_over(job: Job) -> bool:
    """Remember when its turn came; True once it has been passed over for so long that its resources are held for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_job SET passed_over_since = COALESCE(passed_over_since, clock_timestamp())"
            " WHERE id = %s RETURNING passed_over_since <= clock_timestamp() - make_interval(secs => %s)",
            [job.pk, settings.MAX_BYPASS_SECONDS],
        )
        row = cursor.fetchone()
    return bool(row and row[0])
