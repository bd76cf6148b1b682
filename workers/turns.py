"""Whose turn it is on an engine: the order of its queues.

First in first out per environment and tier, paid before free. An account at its cap waits and hides nobody. Of each
queue the first `CANDIDATES` jobs are looked at. Where none of them fits, every account has one more behind them: the
first of its next `DEPTH` jobs that asks for no more than is free, so that a long line of jobs that do not fit hides
neither another account's jobs nor later ones of its own.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.conf import settings

from compute_site.core.db import all_rows, first_row
from environments.models import Engine, Slots
from environments.models.slots import multirange
from environments.slots import reach_of, room_in
from jobs.line import FULL_ACCOUNT, NOT_FULL, RUNS_SQL, WAITS_NOW_SQL
from jobs.models import Job
from jobs.networks import GRANTED_SQL

CANDIDATES = 32  # how many queued jobs of one environment and tier one pass looks at
DEPTH = 256  # how many of one account's jobs behind them

# Who may go, of queued jobs `q`: a job that waits, of an account below its cap, that the worker could hold at all. What
# a worker of narrower slots could never hold it passes by without a word: it fills no place in its list. `%(reach)s`:
# by environment and resource, the most that a job could get of its slots; empty for a worker with all of its engine.
RUNNING = f"""running AS MATERIALIZED (
    SELECT account_id, count(*) AS jobs FROM jobs_job WHERE {RUNS_SQL} GROUP BY account_id)"""
WITHIN_REACH = """NOT EXISTS (SELECT FROM jsonb_each_text(%(reach)s::jsonb->q.environment_id::text) r (slug, most)
                   WHERE r.most::bigint < (q.terms->'resources'->>r.slug)::bigint)"""
MAY_GO = f"{WAITS_NOW_SQL} AND {NOT_FULL} AND {WITHIN_REACH} AND {GRANTED_SQL}"
# First in first out. `+ 0`: an order that only the index of the queues has. Asked for the first by id alone, PostgreSQL
# may think the primary key the shorter way, and reads every job of the site for each queue that is empty.
IN_ORDER = "ORDER BY q.id + 0"

# Whether what engines of other hosts take meanwhile could bring the account to its cap: at most 64 each, generously.
NEAR_CAP = """COALESCE(running.jobs, 0) >= %(cap)s - 64 * (
           SELECT count(*) FROM environments_engine o WHERE o.host_id <> %(host)s AND o.state = 'active')"""
# An environment without a free core among the worker's can start nothing: its queue is not even read.
CAN_START = """(e.benchmark OR EXISTS (
       SELECT FROM environments_core c
        WHERE c.environment_id = e.id AND c.index::bigint <@ %(cores)s::int8multirange AND NOT EXISTS (
              SELECT FROM environments_reservedcore r WHERE r.core_id = c.id AND r.released_at IS NULL)))"""
TURNS_SQL = f"""
WITH {RUNNING}, {FULL_ACCOUNT}
SELECT j.id, j.account_id, e.id, t.tier, {NEAR_CAP}, e.benchmark
  FROM environments_environment e
 CROSS JOIN (VALUES ('paid'), ('free')) t (tier)
 CROSS JOIN LATERAL (
    SELECT q.id, q.account_id FROM jobs_job q
     WHERE q.environment_id = e.id AND q.tier = t.tier AND {MAY_GO}
     {IN_ORDER} LIMIT {{limit}}) j
  LEFT JOIN running ON running.account_id = j.account_id
 WHERE e.engine_id = %(engine)s AND e.state <> 'retired' AND {CAN_START}
 ORDER BY (t.tier = 'free'), j.id
"""

# The accounts that have a job in the queue, each found by one look into an index, where a DISTINCT would read the whole
# queue; then of each the first job that fits.
IN_QUEUE = "q.environment_id = %(environment)s AND q.tier = %(tier)s AND q.status = 'queued'"
ACCOUNT_AFTER = f"""SELECT q.account_id FROM jobs_job q
             WHERE {IN_QUEUE} AND q.account_id + 0 > {{account}} ORDER BY q.account_id + 0 LIMIT 1"""
ACCOUNTS = f"""waiting_account (id) AS (
    SELECT ({ACCOUNT_AFTER.format(account="0")})
     UNION ALL
    SELECT ({ACCOUNT_AFTER.format(account="w.id")}) FROM waiting_account w WHERE w.id IS NOT NULL)"""
FITS = """NOT EXISTS (SELECT FROM jsonb_each_text(next.asks) a (slug, amount)
                   WHERE a.amount::bigint > COALESCE((%(room)s::jsonb->>a.slug)::bigint, -1))"""
BEHIND_SQL = f"""
WITH RECURSIVE {RUNNING}, {FULL_ACCOUNT}, {ACCOUNTS}
SELECT j.id, w.id, %(environment)s, %(tier)s, {NEAR_CAP}
  FROM waiting_account w
 CROSS JOIN LATERAL (
    SELECT next.id FROM (
        SELECT q.id, q.terms->'resources' AS asks FROM jobs_job q
         WHERE {IN_QUEUE} AND q.account_id + 0 = w.id AND q.id + 0 > %(last)s AND {MAY_GO}
         {IN_ORDER} LIMIT %(depth)s) next
     WHERE {FITS} ORDER BY next.id LIMIT 1) j
  LEFT JOIN running ON running.account_id = w.id
 ORDER BY j.id LIMIT %(limit)s
"""
BEYOND_SQL = f"""
SELECT q.id FROM jobs_job q
 WHERE {IN_QUEUE} AND q.id + 0 < %(before)s AND q.cancel_requested_at IS NULL AND q.passed_over_since IS NULL
   AND NOT {WITHIN_REACH}
 {IN_ORDER} LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A queued job whose turn it may be. `near_cap`: count its account's jobs again, with nobody else counting."""

    job_id: int
    account_id: int
    environment_id: int
    tier: str
    near_cap: bool
    benchmark: bool = False


def turns(engine: Engine, slots: Slots, limit: int = CANDIDATES) -> list[Turn]:
    """Whose turn it may be on the engine, for a worker with these slots: the first `limit` of each queue; one statement."""
    statement = TURNS_SQL.format(limit=limit)  # no parameter: for each number its plan is kept
    return [Turn(*row) for row in all_rows(statement, _values(engine, slots))]


def behind(engine: Engine, slots: Slots, seen: Sequence[Turn]) -> Iterator[Turn]:
    """Whose turn it may be where none of the `seen` fits: of each queue that is longer, one job of each account.

    Reads when the first is asked for: what is free at that moment, and one statement for each such queue. Under the
    host's lock.
    """
    found = []
    for (environment, tier), count in Counter((turn.environment_id, turn.tier) for turn in seen).items():
        if count < CANDIDATES:
            continue
        values = {
            **_values(engine, slots),
            "environment": environment,
            "tier": tier,
            "depth": DEPTH,
            "limit": CANDIDATES,
            "last": max(
                turn.job_id for turn in seen if (turn.environment_id, turn.tier) == (environment, tier)
            ),
            "room": json.dumps(room_in(slots, environment, tier)),
        }
        found += [Turn(*row) for row in all_rows(BEHIND_SQL, values)]
    yield from sorted(found, key=lambda turn: (turn.tier == "free", turn.job_id))


def first_beyond(slots: Slots, job: Job) -> int | None:
    """The key of the first job before `job` in its queue that these slots could never hold and nobody has passed yet."""
    if slots.cores is None:
        return None
    values = {"environment": job.environment_id, "tier": job.tier, "before": job.pk}
    row = first_row(BEYOND_SQL, {**values, "reach": json.dumps(reach_of(slots))})
    return row[0] if row else None


def _values(engine: Engine, slots: Slots) -> dict[str, object]:
    return {
        "engine": engine.pk,
        "host": engine.host_id,
        "reach": json.dumps(reach_of(slots)),
        "cores": multirange(slots.cores),
        "cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT,
    }
