"""Which queued job is taken next."""

from datetime import timedelta
from typing import Any

import pytest

from compute_site.core.db import database_now
from environments.setup import create_environment
from jobs.models import Job
from tests.factories import submit, take
from workers import lifecycle, scheduling
from workers.models import Worker


@pytest.fixture
def worker(site: Any) -> Worker:
    return lifecycle.register(site.engine)


def next_job(site: Any, worker: Worker) -> Job | None:
    taken = scheduling.take(site.engine, worker)
    return taken.attempt.job if taken else None


def waits_long(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(passed_over_since=database_now() - timedelta(days=1))
    return job


def test_a_long_queue_that_does_not_fit_hides_no_other(site, user, account, worker):
    create_environment(site.engine, "other", cpu="4-7", ram_mib=1024, disk_mib=1000, prices={"cpu": 1})
    take(submit(user, resources={"ram": 8192}))  # its memory is gone, three of its cores are free
    for _ in range(scheduling.CANDIDATES + 1):
        submit(user)
    wanted = submit(user, environment="local/other")
    assert next_job(site, worker) == wanted


def test_an_account_runs_no_more_than_it_may(site, user, account, worker, settings):
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 1
    first, second = submit(user), submit(user)
    assert next_job(site, worker) == first
    assert next_job(site, worker) is None
    Job.objects.filter(pk=first.pk).update(
        status="failed", end_reason="internal_error", finished_at=database_now()
    )
    assert next_job(site, worker) == second


def test_what_a_job_waited_for_too_long_is_held_for_it(site, user, account, worker):
    take(submit(user, resources={"cpu": 3}))
    waits_long(submit(user, resources={"cpu": 4}))
    submit(user), submit(user, tier="free")
    assert next_job(site, worker) is None


def test_paid_jobs_do_not_wait_for_a_free_one(site, user, account, worker):
    take(submit(user, tier="free", resources={"cpu": 2}))
    waits_long(submit(user, tier="free"))
    assert next_job(site, worker) is None
    paid = submit(user)
    assert next_job(site, worker) == paid
