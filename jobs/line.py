"""The line of queued jobs before an environment: paid before free, then first in first out."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Q, QuerySet

from compute_site.core.db import all_rows
from environments.models import Tier
from jobs.caps import full_accounts
from jobs.models import Job, JobStatus

LONGEST = 200  # of a longer line nothing is foretold
RUNS_SQL = "status IN ('preparing', 'running', 'collecting')"  # counts against its account's cap
# A queued job `q` that is in a line at all, by the clock `{now}`; `may_go` is the same for a query of jobs.
WAITS_SQL = """q.status = 'queued' AND q.cancel_requested_at IS NULL
       AND (q.not_before IS NULL OR q.not_before <= {now}) AND (q.queue_expires_at IS NULL OR q.queue_expires_at > {now})"""
WAITS_NOW_SQL = WAITS_SQL.format(now="clock_timestamp()")
# Accounts that run as many jobs as they may, and which jobs of a line they do not hide.
FULL_ACCOUNT = f"""full_account AS MATERIALIZED (
    SELECT account_id FROM jobs_job WHERE {RUNS_SQL}
     GROUP BY account_id HAVING count(*) >= %(cap)s)"""
NOT_FULL = "q.account_id NOT IN (SELECT account_id FROM full_account)"
LINES_SQL = f"""
WITH {FULL_ACCOUNT}
SELECT j.* FROM unnest(%(environments)s::bigint[]) e (id)
 CROSS JOIN LATERAL (
    SELECT q.environment_id, q.id, q.tier, (q.terms->'resources')::text, q.max_duration FROM jobs_job q
     WHERE q.environment_id = e.id AND {WAITS_SQL.format(now="%(now)s")}
       AND {NOT_FULL}
     ORDER BY (q.tier = 'free'), q.id LIMIT %(limit)s) j
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job as the line sees it. `seconds`: its longest run."""

    job_id: int
    tier: str
    amounts: dict[str, int]
    seconds: int

    def is_before(self, tier: str, job_id: int | None = None) -> bool:
        """Whether it goes before the job with this key of this tier; without a key, one that comes now."""
        if self.tier != tier:
            return self.tier == Tier.PAID
        return job_id is None or self.job_id < job_id


def read_lines(environment_ids: Collection[int], now: datetime) -> dict[int, list[Waiting]]:
    """By environment: who may go when there is room, in order; the first `LONGEST` + 1 of each. One statement."""
    values = {
        "environments": list(environment_ids),
        "now": now,
        "cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT,
        "limit": LONGEST + 1,
    }
    lines: dict[int, list[Waiting]] = {key: [] for key in environment_ids}
    for environment, key, tier, amounts, seconds in all_rows(LINES_SQL, values):
        lines[environment].append(Waiting(key, tier, json.loads(amounts), seconds))
    return lines


def may_go(now: datetime) -> Q:
    """For a query of jobs: those that are in a line at all, neither cancelled nor over nor waiting for a retry."""
    return Q(
        Q(not_before__isnull=True) | Q(not_before__lte=now),
        Q(queue_expires_at__isnull=True) | Q(queue_expires_at__gt=now),
        status=JobStatus.QUEUED,
        cancel_requested_at__isnull=True,
    )


def ahead_of(job: Job, now: datetime) -> QuerySet[Job]:
    """The queued jobs that go before `job` (saved or not) when there is room: of accounts at their cap, none but its own."""
    before = Q(tier=job.tier) if job.pk is None else Q(tier=job.tier, pk__lt=job.pk)
    if job.tier == Tier.FREE:
        before |= Q(tier=Tier.PAID)
    waiting = Job.objects.filter(may_go(now), before, environment_id=job.environment_id)
    return waiting.exclude(Q(account__in=full_accounts()) & ~Q(account=job.account_id))


def place_in_line(job: Job, now: datetime) -> int:
    """The job's place in the line of its environment, from 1."""
    return 1 + ahead_of(job, now).count()
