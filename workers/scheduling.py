"""Step 2, take: lock the host, read what is in use, choose the next job that fits, reserve. One transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from compute_site.core.db import ClockTimestamp, first_row, read_key, rows_of
from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import new_public_id
from environments import reservations
from environments.models import Engine, EngineState, Environment
from environments.slots import out_of_reach, read_reach
from jobs.caps import check_account
from jobs.measuring import DUE, due_values
from jobs.models import Attempt, Job, JobStatus
from jobs.overdue import Kept
from jobs.transitions import move_job
from workers.checkpoint import checkpoint
from workers.lifecycle import new_lease
from workers.models import Worker, WorkerStatus
from workers.sandbox.spec import container_name
from workers.turns import Turn, behind, first_beyond, turns

PREPARE_SECONDS = 300.0

# Why a job waits that nobody can pass: others of its queue wait for the same, its account is at its cap, or its host is
# measured.
NOT_PASSED = ("jobs", "account", "host")

LOCKED_SQL = """
    SELECT {columns} FROM {table} WHERE id = %s AND status = 'queued' AND cancel_requested_at IS NULL
       FOR NO KEY UPDATE SKIP LOCKED
"""
# The last one: mostly nothing is overdue anywhere, and then no more is read of it.
BEGIN_SQL = f"""
    SELECT g.state, w.status, {DUE}, clock_timestamp(),
           EXISTS (SELECT FROM jobs_job WHERE status = 'queued'
                      AND passed_over_since <= clock_timestamp() - make_interval(secs => %(rest)s))
      FROM environments_engine g, workers_worker w
     WHERE w.id = %(worker)s AND g.id = %(engine)s
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that was just reserved for this worker. `more`: others wait whose turn may have come too."""

    attempt: Attempt
    more: bool


@dataclass(frozen=True, slots=True)
class _Begin:
    """`may_start`: the engine is active and this worker online. `benchmark_due`: only a benchmark may start."""

    may_start: bool
    benchmark_due: bool
    now: datetime
    some_overdue: bool


def take(engine: Engine, worker: Worker) -> Taken | None:
    """Reserve the next job that fits the worker's slots and make its attempt (preparing, leased to `worker`); None when
    none does.

    Before: job queued. After: job preparing, attempt preparing, reservation held; or nothing changed at all.
    """
    if not turns(engine, worker.slots, 1):
        return None
    checkpoint("take.before")
    with transaction.atomic():
        assert engine.host_id is not None
        host = reservations.lock_host(engine.host_id)
        begin = _begin(engine, worker)
        if host.declared_gone_at or not begin.may_start:
            return None
        first = turns(engine, worker.slots)
        candidates: Iterator[Turn] = chain(first, behind(engine, worker.slots, first))
        if begin.benchmark_due:  # nothing else starts before it, and what is kept for others waits as well
            candidates = (turn for turn in first if turn.benchmark)
        keeps = begin.some_overdue and not begin.benchmark_due
        kept = Kept([engine] if keeps else [], begin.now, worker.slots)
        taken = _first_that_fits(engine, worker, candidates, kept)
    checkpoint("take.after")
    return taken


def _begin(engine: Engine, worker: Worker) -> _Begin:
    """Read after the host's lock."""
    row = first_row(BEGIN_SQL, {"worker": worker.pk, "engine": engine.pk, **due_values()})
    assert row is not None
    return _Begin(row[:2] == (EngineState.ACTIVE, WorkerStatus.ONLINE), *row[2:])


def _first_that_fits(engine: Engine, worker: Worker, candidates: Iterator[Turn], kept: Kept) -> Taken | None:
    """Try each in a savepoint of its own. Whom the one that fits has passed over is noted, and since when."""
    missed: list[Job] = []
    for turn in candidates:
        job = _locked(turn.job_id)
        if job is None:
            continue
        try:
            attempt = _reserve(engine, worker, job, kept, near_cap=turn.near_cap)
        except CapacityUnavailable as error:
            if error.of_host:  # what it needs may be passing to other engines all the time
                _note_passed_over([job])
            elif error.resource not in NOT_PASSED:
                missed.append(job)
            continue
        missed += _passed_for_another(worker, job)
        _note_passed_over([one for one in missed if one.environment_id == job.environment_id])
        return Taken(attempt, more=next(candidates, None) is not None)
    return None


def _passed_for_another(worker: Worker, job: Job) -> list[Job]:
    """The first that `job` has passed over and that only another worker's slots can take; one is enough at a time."""
    first = first_beyond(worker.slots, job)
    if first is None:
        return []
    passed = Job.objects.get(pk=first)
    reach = read_reach([passed.environment_id])[passed.environment_id]
    return [passed] if out_of_reach(reach, passed.terms["resources"]) is None else []


def _locked(job_id: int) -> Job | None:
    rows = rows_of(Job, LOCKED_SQL, [job_id])
    if not rows:
        return None
    rows[0].environment = read_key(Environment, rows[0].environment_id)
    return rows[0]


def _reserve(engine: Engine, worker: Worker, job: Job, kept: Kept, *, near_cap: bool) -> Attempt:
    """Claim and attempt in a savepoint: raises CapacityUnavailable and leaves nothing behind when it does not fit."""
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
        kept.check(job)
        if near_cap:
            check_account(job.account_id)
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


def _note_passed_over(jobs: Sequence[Job]) -> None:
    """Remember since when jobs that did not fit are passed over; the first time counts."""
    new = [job.pk for job in jobs if job.passed_over_since is None]
    if new:
        Job.objects.filter(pk__in=new).update(passed_over_since=ClockTimestamp())
