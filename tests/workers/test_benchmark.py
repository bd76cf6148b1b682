"""When a waiting benchmark job has its turn: it is passed for a while, then the host is kept for it, then others go."""

from datetime import timedelta
from typing import Any

import pytest

from compute_site.core.db import database_now
from environments.benchmark import keep_in_step
from environments.models import Device, Engine, Environment, Reservation, SlotSet
from environments.setup import create_environment
from jobs.models import Job
from jobs.pending import pending_reason
from tests.environments.conftest import give_back
from tests.factories import Site, make_account, make_user, submit
from workers import lifecycle, scheduling
from workers.fsck import row_disagreements
from workers.models import Worker

LONG_AGO = timedelta(days=1)


@pytest.fixture
def monitor(site: Site, settings: Any) -> Any:
    """Whoever may measure the site's host, with an account."""
    settings.BENCHMARK_SECONDS, settings.BENCHMARK_CURRENCY = 120, "credit"
    settings.BENCHMARK_CORE_PRICE, settings.BENCHMARK_USERS = "0", ["monitor"]
    Engine.objects.update(enable_benchmark=True)
    assert keep_in_step(site.engine) == []
    user = make_user("monitor")
    make_account("monitor's", user)
    return user


@pytest.fixture
def worker(site: Site) -> Worker:
    return lifecycle.register(site.engine)


def measure(monitor: Any, **fields: Any) -> Job:
    return submit(monitor, environment="local/benchmark", **fields)


def next_job(site: Site, worker: Worker) -> Job | None:
    taken = scheduling.take(site.engine, worker)
    return taken.attempt.job if taken else None


def ended(job: Job) -> None:
    """Its container and workspace are gone."""
    give_back(job.attempts.get().public_id)


def neighbour() -> Any:
    """One more client, with an account of its own."""
    bob = make_user("bob")
    make_account("bob's", bob)
    return bob


def waits_long(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(passed_over_since=database_now() - LONG_AGO)


def reason(job: Job) -> str:
    found = Job.objects.select_related("environment__engine__host").get(pk=job.pk)
    return pending_reason(found) or ""


def test_on_an_idle_host_it_starts_and_others_wait(site, user, account, monitor, worker):
    job, other = measure(monitor, resources={"cpu": 8}), submit(user)
    assert next_job(site, worker) == job
    assert next_job(site, worker) is None
    assert "a benchmark runs on its host" in reason(other)
    assert list(row_disagreements()) == []
    ended(job)
    assert next_job(site, worker) == other


def test_it_is_passed_until_it_is_due_and_then_nobody_starts_before_it(site, user, account, monitor, worker):
    first, job = submit(user), measure(monitor)
    assert next_job(site, worker) == first
    second = submit(user)
    assert next_job(site, worker) == second
    assert next_job(site, worker) is None
    job.refresh_from_db()
    assert job.passed_over_since is not None
    assert "a benchmark runs alone, and others hold something of its host" in reason(job)
    waits_long(job)
    third = submit(user)
    assert next_job(site, worker) is None
    assert "kept for a benchmark" in reason(third)
    ended(first)
    ended(second)
    assert next_job(site, worker) == job


def test_a_line_of_them_keeps_nobody_waiting_for_long(site, user, account, monitor, worker):
    """The second was passed over as long as the first: others have their turn between them all the same."""
    first, second = measure(monitor), measure(monitor, resources={"cpu": 8})
    assert next_job(site, worker) == first
    waits_long(second)
    ended(first)
    other = submit(user)
    assert next_job(site, worker) == other
    ended(other)
    assert next_job(site, worker) is None
    assert "measured a short while ago" in reason(second)
    Reservation.objects.filter(environment__benchmark=True).update(exited_at=database_now() - LONG_AGO)
    last = submit(user)
    assert next_job(site, worker) == second
    assert last.status == "queued"


def expired(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(queue_expires_at=database_now())


def too_large(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(
        terms={**job.terms, "resources": {**job.terms["resources"], "cpu": 9}}
    )


def of_no_device(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(
        terms={**job.terms, "resources": {**job.terms["resources"], "gpu": 1}}
    )


def without_worker(job: Job) -> None:
    Engine.objects.update(worker_seen_at=database_now() - LONG_AGO)


def beside_what_never_ends(job: Job) -> None:
    Reservation.objects.update(created_at=database_now() - LONG_AGO)


def of_an_account_at_its_cap(job: Job) -> None:
    Job.objects.filter(status="preparing").update(account=job.account)


@pytest.mark.parametrize("change", [expired, too_large, of_no_device, without_worker, beside_what_never_ends])
def test_for_what_will_not_come_the_host_is_not_kept(site, user, account, monitor, worker, settings, change):
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 2 - (change is of_an_account_at_its_cap)
    device = Device.objects.create(host=site.host, uuid="GPU-1", health="unhealthy")
    keep_in_step(site.engine)
    job, first = measure(monitor), submit(user)
    assert device.resources.get().environment.benchmark
    Job.objects.filter(pk=job.pk).update(not_before=database_now() + LONG_AGO)
    assert next_job(site, worker) == first
    Job.objects.filter(pk=job.pk).update(not_before=None)
    waits_long(job)
    other = submit(neighbour())
    assert next_job(site, worker) is None
    change(job)
    assert next_job(site, worker) == other


@pytest.mark.parametrize(("cores", "kept"), [(2, True), (3, False)])
def test_of_a_worker_s_slots_it_gets_what_is_there(site, user, account, monitor, cores, kept):
    worker = lifecycle.register(site.engine, SlotSet(frozenset({0, 1}), frozenset()))
    job, first = measure(monitor, resources={"cpu": cores}), submit(user)
    Job.objects.filter(pk=job.pk).update(not_before=database_now() + LONG_AGO)
    assert next_job(site, worker) == first
    Job.objects.filter(pk=job.pk).update(not_before=None)
    waits_long(job)
    other = submit(user)
    assert next_job(site, worker) == (None if kept else other)
    ended(first)
    assert next_job(site, worker) == (job if kept else None)


def test_another_engine_of_the_host_waits_too(site, user, account, monitor, worker):
    second = Engine.objects.create(
        host=site.host, name="second", endpoint="unix:///s", state="active", worker_seen_at=database_now()
    )
    create_environment(second, "main", cpu="4-7", ram_mib=1024, disk_mib=1000, prices={"cpu": 1})
    first, job = submit(user), measure(monitor)
    assert next_job(site, worker) == first
    waits_long(job)
    submit(user, environment="second/main")
    assert scheduling.take(second, lifecycle.register(second)) is None


def test_what_is_overdue_elsewhere_does_not_hold_it_up(site, user, account, monitor, worker):
    """Both are due on an idle host: one of them has to start."""
    job, other = measure(monitor), submit(user, resources={"cpu": 4})
    waits_long(job)
    waits_long(other)
    assert next_job(site, worker) == job


def test_fsck_tells_what_runs_beside_it(site, user, account, monitor, worker):
    job = measure(monitor)
    assert next_job(site, worker) == job
    Environment.objects.update(benchmark=False)
    assert next_job(site, worker) is None
    submit(user)
    assert next_job(site, worker) is not None
    Environment.objects.filter(slug="benchmark").update(benchmark=True)
    (told,) = [line for line in row_disagreements() if "benchmark" in line]
    assert "which runs alone" in told
