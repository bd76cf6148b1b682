"""Whose turn it is on an engine: the order of its queues, read in one statement.

First in first out per environment and tier, paid before free. An account at its cap waits and hides nobody. Of each
queue the first `limit` jobs are looked at; where none of them fits, the first job of each account behind them too, so
that one account's long line of jobs that do not fit hides nobody else's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from compute_site.core.db import all_rows
from environments.models import Engine, EnvironmentState

CANDIDATES = 32  # how many queued jobs of one environment and tier one pass looks at

RUNNING = """
    running AS MATERIALIZED (
        SELECT account_id, count(*) AS jobs FROM jobs_job WHERE status IN ('preparing', 'running', 'collecting')
         GROUP BY account_id),
    full_account AS MATERIALIZED (SELECT account_id FROM running WHERE jobs >= %(cap)s)"""
MAY_GO = """q.status = 'queued' AND q.cancel_requested_at IS NULL
           AND (q.not_before IS NULL OR q.not_before <= clock_timestamp())
           AND (q.queue_expires_at IS NULL OR q.queue_expires_at > clock_timestamp())
           AND q.account_id NOT IN (SELECT account_id FROM full_account)"""
# So near that what engines of other hosts take while this one does could pass the cap: at most 64 each, generously.
NEAR_CAP = """COALESCE(running.jobs, 0) >= %(cap)s - 64 * (
                 SELECT count(*) FROM environments_engine o WHERE o.host_id <> %(host)s AND o.state = 'active')"""
# `overdue`: jobs of the whole host that were passed over for so long that their resources are kept for them; those of
# an engine that starts nothing keep nothing. An environment without a free core can start nothing, so its queue is
# not even read.
TURNS_SQL = f"""
    WITH {RUNNING},
    overdue AS MATERIALIZED (
        SELECT q.id
          FROM jobs_job q
          JOIN environments_environment e ON e.id = q.environment_id
          JOIN environments_engine g ON g.id = e.engine_id
         WHERE q.passed_over_since <= clock_timestamp() - make_interval(secs => %(bypass)s) AND {MAY_GO}
           AND e.state <> %(retired)s AND g.host_id = %(host)s AND g.state = 'active'
           AND (g.id = %(engine)s OR g.worker_seen_at > clock_timestamp() - make_interval(secs => %(alive)s))
         ORDER BY (q.tier = 'free'), q.passed_over_since, q.id LIMIT 256)
    SELECT j.id, j.account_id, e.id, t.tier, {NEAR_CAP}, (SELECT array_agg(id) FROM overdue)
      FROM environments_environment e
     CROSS JOIN (VALUES ('paid'), ('free')) t (tier)
     CROSS JOIN LATERAL (
        SELECT q.id, q.account_id FROM jobs_job q
         WHERE q.environment_id = e.id AND q.tier = t.tier AND {MAY_GO}
         ORDER BY q.id LIMIT %(limit)s) j
      LEFT JOIN running ON running.account_id = j.account_id
     WHERE e.engine_id = %(engine)s AND e.state <> %(retired)s
       AND EXISTS (
           SELECT FROM environments_core c
            WHERE c.environment_id = e.id
              AND NOT EXISTS (SELECT FROM environments_reservedcore r WHERE r.core_id = c.id AND r.released_at IS NULL))
     ORDER BY (t.tier = 'free'), j.id
"""
OTHERS_SQL = f"""
    WITH {RUNNING},
    first AS (
        SELECT DISTINCT ON (q.account_id) q.id, q.account_id FROM jobs_job q
         WHERE q.environment_id = %(environment)s AND q.tier = %(tier)s AND {MAY_GO}
           AND q.account_id <> ALL(%(seen)s)
         ORDER BY q.account_id, q.id)
    SELECT first.id, first.account_id, %(environment)s, %(tier)s, {NEAR_CAP}
      FROM first LEFT JOIN running ON running.account_id = first.account_id
     ORDER BY first.id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A queued job whose turn it may be. `near_cap`: count its account's jobs again, with nobody else counting."""

    job_id: int
    account_id: int
    environment_id: int
    tier: str
    near_cap: bool


@dataclass(frozen=True, slots=True)
class Turns:
    """In order of their turn; and the keys of the host's overdue jobs, the longest waiting first."""

    jobs: Sequence[Turn]
    overdue: Sequence[int]


def turns(engine: Engine, limit: int = CANDIDATES) -> Turns:
    """Whose turn it may be on the engine; one statement."""
    values = {
        **_values(engine, limit),
        "engine": engine.pk,
        "retired": EnvironmentState.RETIRED,
        "bypass": settings.MAX_BYPASS_SECONDS,
        "alive": settings.WORKER_TTL_SECONDS,
    }
    rows = all_rows(TURNS_SQL, values)
    return Turns([Turn(*row[:-1]) for row in rows], (rows[0][-1] or []) if rows else [])


def first_of_others(engine: Engine, seen: Sequence[Turn]) -> list[Turn]:
    """The first job of each account behind the `seen` ones, of queues longer than what was seen; one statement each."""
    queues = Counter((turn.environment_id, turn.tier) for turn in seen)
    found = []
    for (environment, tier), count in queues.items():
        if count == CANDIDATES:
            values = {**_values(engine, CANDIDATES), "environment": environment, "tier": tier}
            values["seen"] = [
                turn.account_id for turn in seen if (turn.environment_id, turn.tier) == (environment, tier)
            ]
            found += [Turn(*row) for row in all_rows(OTHERS_SQL, values)]
    return sorted(found, key=lambda turn: (turn.tier == "free", turn.job_id))


def _values(engine: Engine, limit: int) -> dict[str, object]:
    return {"cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT, "host": engine.host_id, "limit": limit}
