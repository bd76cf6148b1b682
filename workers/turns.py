"""Whose turn it is on an engine: the order of its queues, read in one statement.

First in first out per environment and tier, paid before free. An account at its cap waits and hides nobody. Of each
queue the first `limit` jobs are looked at; where none of them fits, the first job of each account behind them too, so
that one account's long line of jobs that do not fit hides nobody else's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from compute_site.core.db import all_rows, first_row
from environments.models import Engine, EnvironmentState, Slots
from environments.models.slots import multirange
from environments.slots import REACH_SQL
from jobs.line import RUNS_SQL, WAITS_NOW_SQL
from jobs.models import Job

CANDIDATES = 32  # how many queued jobs of one environment and tier one pass looks at

RUNNING = f"""
    running AS MATERIALIZED (
        SELECT account_id, count(*) AS jobs FROM jobs_job WHERE {RUNS_SQL}
         GROUP BY account_id),
    full_account AS MATERIALIZED (SELECT account_id FROM running WHERE jobs >= %(cap)s)"""
MAY_GO = f"""{WAITS_NOW_SQL}
           AND q.account_id NOT IN (SELECT account_id FROM full_account)"""
# So near that what engines of other hosts take while this one does could pass the cap: at most 64 each, generously.
NEAR_CAP = """COALESCE(running.jobs, 0) >= %(cap)s - 64 * (
                 SELECT count(*) FROM environments_engine o WHERE o.host_id <> %(host)s AND o.state = 'active')"""
# An environment without a free core can start nothing, so its queue is not even read.
TURNS_SQL = f"""
    WITH {{reach}}{RUNNING}
    SELECT j.id, j.account_id, e.id, t.tier, {NEAR_CAP}, e.benchmark
      FROM environments_environment e
     CROSS JOIN (VALUES ('paid'), ('free')) t (tier)
     CROSS JOIN LATERAL (
        SELECT q.id, q.account_id FROM jobs_job q
         WHERE q.environment_id = e.id AND q.tier = t.tier AND {MAY_GO} AND {{reachable}}
         ORDER BY q.id LIMIT %(limit)s) j
      LEFT JOIN running ON running.account_id = j.account_id
     WHERE e.engine_id = %(engine)s AND e.state <> %(retired)s
       AND (e.benchmark OR EXISTS (
           SELECT FROM environments_core c
            WHERE c.environment_id = e.id AND {{among}}
              AND NOT EXISTS (SELECT FROM environments_reservedcore r WHERE r.core_id = c.id AND r.released_at IS NULL)))
     ORDER BY (t.tier = 'free'), j.id
"""
OTHERS_SQL = f"""
    WITH {{reach}}{RUNNING},
    first AS (
        SELECT DISTINCT ON (q.account_id) q.id, q.account_id FROM jobs_job q
         WHERE q.environment_id = %(environment)s AND q.tier = %(tier)s AND {MAY_GO}
           AND q.account_id <> ALL(%(seen)s) AND {{reachable}}
         ORDER BY q.account_id, q.id)
    SELECT first.id, first.account_id, %(environment)s, %(tier)s, {NEAR_CAP}
      FROM first LEFT JOIN running ON running.account_id = first.account_id
     ORDER BY first.id LIMIT %(limit)s
"""
# A worker of narrower slots passes by, without a word, what it could never hold: those jobs wait for another worker,
# fill no place in its list, and of its cores and devices nothing is kept for them.
REACH = f"reach AS MATERIALIZED ({REACH_SQL.format(choice='s.id = %(slots)s')})"
REACHABLE = """NOT EXISTS (
               SELECT FROM reach WHERE reach.environment_id = q.environment_id
                  AND reach.most < (q.terms->'resources'->>reach.slug)::bigint)"""
OF_ALL = {"reach": "", "reachable": "true", "among": "true"}
OF_SLOTS = {
    "reach": f"{REACH},",
    "reachable": REACHABLE,
    "among": "c.index::bigint <@ %(cores)s::int8multirange",
}
BEYOND_SQL = f"""
    WITH {REACH}
    SELECT q.id FROM jobs_job q
     WHERE q.environment_id = %(environment)s AND q.tier = %(tier)s AND q.id < %(before)s AND q.status = 'queued'
       AND q.cancel_requested_at IS NULL AND q.passed_over_since IS NULL AND NOT {REACHABLE}
     ORDER BY q.id LIMIT 1
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
    """Whose turn it may be on the engine, for a worker with these slots; one statement."""
    values = {
        **_values(engine, slots, limit),
        "engine": engine.pk,
        "retired": EnvironmentState.RETIRED,
    }
    return [Turn(*row) for row in all_rows(TURNS_SQL.format(**_parts(slots)), values)]


def first_beyond(slots: Slots, job: Job) -> int | None:
    """The key of the first job before `job` in its queue that these slots could never hold and nobody has passed yet."""
    if slots.cores is None:
        return None
    values = {"slots": slots.pk, "environment": job.environment_id, "tier": job.tier, "before": job.pk}
    row = first_row(BEYOND_SQL, values)
    return row[0] if row else None


def first_of_others(engine: Engine, slots: Slots, seen: Sequence[Turn]) -> list[Turn]:
    """The first job of each account behind the `seen` ones, of queues longer than what was seen; one statement each."""
    queues = Counter((turn.environment_id, turn.tier) for turn in seen)
    found = []
    for (environment, tier), count in queues.items():
        if count == CANDIDATES:
            values = {**_values(engine, slots, CANDIDATES), "environment": environment, "tier": tier}
            values["seen"] = [
                turn.account_id for turn in seen if (turn.environment_id, turn.tier) == (environment, tier)
            ]
            found += [Turn(*row) for row in all_rows(OTHERS_SQL.format(**_parts(slots)), values)]
    return sorted(found, key=lambda turn: (turn.tier == "free", turn.job_id))


def _values(engine: Engine, slots: Slots, limit: int) -> dict[str, object]:
    values = {"cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT, "host": engine.host_id, "limit": limit}
    return values if slots.cores is None else {**values, "slots": slots.pk, "cores": multirange(slots.cores)}


def _parts(slots: Slots) -> dict[str, str]:
    return OF_ALL if slots.cores is None else OF_SLOTS
