"""Why a job waits, told from the rows."""

from datetime import timedelta

import pytest

from compute_site.core.db import database_now
from environments.editing import declare_gone
from jobs.models import Job
from jobs.outcome import Outcome
from jobs.pending import ordinal, pending_reason
from jobs.settlement import settle
from tests.factories import submit, take


def reason(job: Job) -> str | None:
    return pending_reason(Job.objects.select_related("environment__engine").get(pk=job.pk))


def test_an_empty_site_starts_it_at_once(site, user, account):
    assert reason(submit(user)) == "first in line; about to start"


def test_what_is_short_and_its_place(site, user, account):
    take(submit(user, resources={"cpu": 3, "ram": 7000}))
    jobs = [submit(user, resources={"cpu": 2, "ram": 2048}) for _ in range(3)]
    assert reason(jobs[0]) == "needs 2 cpu, 1 free; needs 2048 ram, 1192 free; first in line"
    assert reason(jobs[2]) == "needs 2 cpu, 1 free; needs 2048 ram, 1192 free; third in line"
    assert reason(take(submit(user)).job) is None


def test_free_jobs_stand_behind_paid_ones_and_have_less(site, user, account):
    free = submit(user, tier="free", resources={"cpu": 2})
    take(submit(user, tier="free"))
    assert reason(free) == "needs 2 cpu, 1 free; first in line"
    submit(user)
    assert reason(free) == "needs 2 cpu, 1 free; second in line"


def test_the_most_jobs_at_once(site, user, account):
    jobs = [submit(user, tier="free") for _ in range(3)]
    take(jobs[0]), take(jobs[1])
    assert reason(jobs[2]) == "2 of at most 2 free jobs run; needs 1 cpu, 0 free; first in line"


def test_a_retry_says_when(site, user, account):
    attempt = take(submit(user), "collecting")
    settle(attempt, attempt.lease, Outcome("engine_lost"))
    job = Job.objects.get(pk=attempt.job_id)
    assert reason(job) == f"retry after {job.not_before:%Y-%m-%dT%H:%M:%SZ}"


def test_the_engine_keeps_it_waiting(site, user, account):
    job = submit(user)
    engine = site.engine
    engine.state = "draining"
    engine.unreachable_since = database_now()
    engine.save()
    assert reason(job) == (
        "engine local is draining: it starts nothing new; "
        f"engine local does not answer since {engine.unreachable_since:%Y-%m-%dT%H:%M:%SZ}; first in line"
    )
    engine.state, engine.worker_seen_at = "active", database_now() - timedelta(days=1)
    engine.save()
    assert reason(job) == "no live worker for engine local; first in line"


def test_a_host_that_is_gone_is_told(site, user, account):
    job = submit(user)
    declare_gone(site.host, "olga")
    assert reason(job) == "host host-local is gone: nothing starts there any more; first in line"


@pytest.mark.parametrize(
    ("number", "word"),
    [(1, "first"), (10, "tenth"), (11, "11th"), (12, "12th"), (21, "21st"), (22, "22nd"), (113, "113th")],
)
def test_ordinals(number, word):
    assert ordinal(number) == word
