"""Which queued job is taken next."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models import Count

from compute_site.core.db import database_now
from environments import reservations
from environments.editing import set_core_total
from environments.models import Device, Engine, Environment, FreeTier
from environments.setup import create_environment
from jobs.models import Attempt, Job
from tests.factories import Site, make_account, make_site, make_user, submit, take
from workers import lifecycle, scheduling, turns
from workers.models import Worker


@pytest.fixture
def worker(site: Any) -> Worker:
    return lifecycle.register(site.engine)


def next_job(site: Any, worker: Worker) -> Job | None:
    taken = scheduling.take(site.engine, worker)
    return taken.attempt.job if taken else None


def give_back(job: Job) -> None:
    """Its attempt never ran: all that it holds is free again, and the job is over."""
    with transaction.atomic():
        reservations.release_rest(Attempt.objects.get(job=job).public_id, never_started=True)
    Job.objects.filter(pk=job.pk).update(
        status="failed", end_reason="internal_error", finished_at=database_now()
    )


@pytest.fixture
def statements(monkeypatch) -> Iterator[list[str]]:
    """What is sent to PostgreSQL from now on, by Django or as prepared statements."""
    seen: list[str] = []

    class Recorded(psycopg.Cursor):
        def execute(self, query, *arguments, **options):
            seen.append(str(query))
            return super().execute(query, *arguments, **options)

    def record(execute, sql, params, many, context):
        seen.append(sql)
        return execute(sql, params, many, context)

    monkeypatch.setattr("compute_site.core.db.psycopg.Cursor", Recorded)
    with connection.execute_wrapper(record):
        yield seen


def waits_long(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(passed_over_since=database_now() - timedelta(days=1))
    return job


def test_a_long_queue_that_does_not_fit_hides_no_other(site, user, account, worker):
    create_environment(site.engine, "other", cpu="4-7", ram_mib=1024, disk_mib=1000, prices={"cpu": 1})
    take(submit(user, resources={"ram": 8192}))  # its memory is gone, three of its cores are free
    for _ in range(turns.CANDIDATES + 1):
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


def test_first_in_first_out_and_paid_before_free(site, user, account, worker):
    free, first, second = submit(user, tier="free"), submit(user), submit(user)
    assert [next_job(site, worker) for _ in range(4)] == [first, second, free, None]


def test_not_before_is_waited_for_and_the_place_kept(site, user, account, worker):
    first, second, third = (submit(user) for _ in range(3))
    Job.objects.filter(pk=first.pk).update(not_before=database_now() + timedelta(hours=1))
    assert next_job(site, worker) == second
    Job.objects.filter(pk=first.pk).update(not_before=database_now())
    assert next_job(site, worker) == first
    assert next_job(site, worker) == third


def test_a_wait_that_is_over_is_not_taken(site, user, account, worker):
    over, other = submit(user, max_queue_wait=60), submit(user)
    Job.objects.filter(pk=over.pk).update(queue_expires_at=database_now())
    assert next_job(site, worker) == other
    assert next_job(site, worker) is None


def test_paid_and_free_jobs_are_counted_apart(site, user, account, worker):
    Environment.objects.update(max_jobs=1)
    FreeTier.objects.update(max_jobs=1)
    paid = [submit(user) for _ in range(2)]
    free = [submit(user, tier="free") for _ in range(2)]
    assert [next_job(site, worker) for _ in range(3)] == [paid[0], free[0], None]
    waiting = Job.objects.filter(status="queued")
    assert set(waiting) == {paid[1], free[1]}
    assert set(waiting.values_list("passed_over_since", flat=True)) == {None}  # nobody has passed them


def test_an_account_at_its_cap_hides_nobody(site, user, account, worker, settings):
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 1
    for _ in range(turns.CANDIDATES + 2):
        submit(user)
    bob = make_user("bob")
    make_account("bob's", bob)
    wanted = submit(bob)
    first = next_job(site, worker)
    assert first
    assert first.account == account
    assert next_job(site, worker) == wanted
    assert next_job(site, worker) is None


@pytest.fixture
def long_line(site, user, account) -> list[Job]:
    """More of one account than are looked at, and none fits: a core of four is taken."""
    take(submit(user, resources={"cpu": 1}))
    return [submit(user, resources={"cpu": 4}) for _ in range(turns.CANDIDATES + 1)]


def test_a_long_line_that_does_not_fit_hides_no_job_that_does(site, user, worker, long_line):
    bob = make_user("bob")
    make_account("bob's", bob)
    submit(bob, resources={"cpu": 4})
    wanted, own, later = submit(bob), submit(user), submit(bob)
    assert [next_job(site, worker) for _ in range(4)] == [wanted, own, later, None]


def test_whom_a_job_from_behind_has_passed_is_noted_too_and_kept_for_in_time(site, user, worker, long_line):
    first, second = submit(user), submit(user)
    assert next_job(site, worker) == first
    passed = Job.objects.filter(passed_over_since__isnull=False)
    assert list(passed.order_by("pk")) == long_line[: turns.CANDIDATES]
    waits_long(long_line[0])
    assert next_job(site, worker) is None
    set_core_total(site.environment, 3)  # now it can never fit, and keeps nothing
    assert next_job(site, worker) == second


def test_what_is_not_free_is_not_looked_for_behind(site, user, worker, long_line):
    """Each resource counts, and one that the environment has no more."""
    full = submit(user, resources={"ram": 8192 - 63})
    gone = submit(user)
    Job.objects.filter(pk=gone.pk).update(terms={**gone.terms, "resources": {"cpu": 1, "gpu": 0}})
    fits = submit(user, resources={"ram": 8192 - 64})
    assert next_job(site, worker) == fits
    assert {full, gone} <= set(Job.objects.filter(status="queued", passed_over_since=None))


def test_so_far_behind_is_looked_in_each_account(site, user, worker, long_line, monkeypatch):
    monkeypatch.setattr(turns, "DEPTH", 2)
    submit(user, resources={"cpu": 4})
    submit(user)  # the third behind those that are looked at
    bob = make_user("bob")
    make_account("bob's", bob)
    assert next_job(site, worker) is None
    wanted = submit(bob)
    assert next_job(site, worker) == wanted


def test_whether_more_may_start_is_told(site, user, account, worker):
    submit(user), submit(user)
    assert [getattr(scheduling.take(site.engine, worker), "more", None) for _ in range(3)] == [
        True,
        False,
        None,
    ]


def test_whom_others_have_passed_is_noted_once_and_only_then(site, user, account, worker):
    take(submit(user, resources={"cpu": 3}))
    large, larger = submit(user, resources={"cpu": 3}), submit(user, resources={"cpu": 4})
    assert next_job(site, worker) is None
    assert {job.passed_over_since for job in Job.objects.all()} == {None}
    small = submit(user)
    behind = submit(user)
    assert next_job(site, worker) == small
    since = {job.pk: job.passed_over_since for job in Job.objects.all()}
    assert since[large.pk] is not None
    assert since[larger.pk] is not None  # both were passed, though only one stood in front
    assert since[behind.pk] is None
    assert next_job(site, worker) is None
    assert {job.pk: job.passed_over_since for job in Job.objects.all()} == since


def test_what_a_job_waited_for_too_long_is_kept_for_it(site, user, account, worker):
    take(submit(user, resources={"cpu": 3}))
    large = submit(user, resources={"cpu": 4})
    submit(user), submit(user, tier="free")
    Job.objects.filter(pk=large.pk).update(passed_over_since=database_now() - timedelta(seconds=290))
    assert next_job(site, worker) is not None
    give_back(Job.objects.get(status="preparing", terms__resources__cpu=1))
    waits_long(large)
    submit(user)
    before = list(Job.objects.order_by("pk").values())
    assert next_job(site, worker) is None
    assert list(Job.objects.order_by("pk").values()) == before


def test_what_it_does_not_need_is_not_kept(site, user, account, worker):
    take(submit(user, resources={"ram": 8000}))
    waits_long(submit(user, resources={"ram": 4096}))
    submit(user)  # would take memory
    assert next_job(site, worker) is None
    gpu = create_environment(
        site.engine, "gpus", cpu="4-7", ram_mib=4096, disk_mib=1000, counters={"gpu": 2}, prices={"cpu": 1}
    )
    take(submit(user, environment=str(gpu), resources={"gpu": 1}))
    waits_long(submit(user, environment=str(gpu), resources={"gpu": 2}))
    submit(user, environment=str(gpu), resources={"gpu": 1})
    plain = submit(user, environment=str(gpu))
    assert next_job(site, worker) == plain
    assert next_job(site, worker) is None


def test_the_last_place_is_kept_for_who_waited_longer(site, user, account, worker):
    Environment.objects.update(max_jobs=2)
    take(submit(user))
    waits_long(submit(user, resources={"cpu": 4}))
    submit(user, resources={"cpu": 1})
    assert next_job(site, worker) is None


def test_paid_jobs_do_not_wait_for_a_free_one(site, user, account, worker):
    take(submit(user, tier="free", resources={"cpu": 2}))
    waits_long(submit(user, tier="free"))
    assert next_job(site, worker) is None
    paid = submit(user)
    assert next_job(site, worker) == paid


def test_a_job_that_can_never_fit_keeps_nothing(site, user, account, worker):
    take(submit(user))
    waits_long(submit(user, resources={"cpu": 4}))
    small = submit(user)
    assert next_job(site, worker) is None
    set_core_total(site.environment, 3)
    assert next_job(site, worker) == small


class TestTwoEnginesOfOneHost:
    """The second engine offers the same device and memory as the first."""

    @pytest.fixture
    def both(self, site: Site) -> tuple[Environment, Environment]:
        for number in range(2):
            Device.objects.create(host=site.host, uuid=f"GPU-{number}", model="H200")
        second = Engine.objects.create(host=site.host, name="second", endpoint=settings.DOCKER_HOST)
        one, two = (
            create_environment(
                engine, "gpus", cpu=cores, ram_mib=16_000, disk_mib=9000,
                devices={"gpu": ["GPU-0", "GPU-1"]}, prices={"gpu": 1},
            )
            for engine, cores in ((site.engine, "4-5"), (second, "6-7"))
        )  # fmt: skip
        Engine.objects.update(state="active", worker_seen_at=database_now())
        return one, Environment.objects.select_related("engine").get(pk=two.pk)

    def test_what_is_short_on_the_host_is_kept_for_the_other_engine_s_job(
        self, site, user, account, worker, both
    ):
        one, two = both
        second = lifecycle.register(two.engine)
        take(submit(user, environment=str(two), resources={"gpu": 1}))
        large = submit(user, environment=str(one), resources={"gpu": 2})
        assert next_job(site, worker) is None
        large.refresh_from_db()
        assert large.passed_over_since is not None  # nobody passed it here: the devices may pass it elsewhere
        small = submit(user, environment=str(two), resources={"gpu": 1})
        plain = submit(user, environment=str(two))
        waits_long(large)
        taken = scheduling.take(two.engine, second)
        assert taken
        assert taken.attempt.job == plain
        assert scheduling.take(two.engine, second) is None
        give_back(plain)
        Engine.objects.filter(pk=site.engine.pk).update(worker_seen_at=database_now() - timedelta(minutes=1))
        taken = scheduling.take(two.engine, second)
        assert taken
        assert taken.attempt.job == small  # a dead engine's job keeps nothing

    def test_the_one_that_was_passed_first_goes_first(self, site, user, account, worker, both):
        one, two = both
        holding = submit(user, environment=str(two), resources={"gpu": 1})
        take(holding)
        late = waits_long(submit(user, environment=str(one), resources={"gpu": 2}))
        early = submit(user, environment=str(two), resources={"gpu": 2})
        Job.objects.filter(pk=early.pk).update(passed_over_since=database_now() - timedelta(days=2))
        give_back(holding)
        assert next_job(site, worker) is None
        taken = scheduling.take(two.engine, lifecycle.register(two.engine))
        assert taken
        assert taken.attempt.job == early
        give_back(early)
        assert next_job(site, worker) == late

    def test_memory_of_the_host_is_kept_too(self, site, user, account, worker, both):
        one, two = both
        take(submit(user, environment=str(two), resources={"ram": 10_000}))
        waits_long(submit(user, environment=str(one), resources={"ram": 10_000}))
        submit(user)
        assert next_job(site, worker) is None


def test_a_take_costs_no_more_statements_than_it_did(site, user, account, worker, statements):
    for _ in range(3):
        submit(user)
    assert next_job(site, worker)  # connections are set up
    statements.clear()
    assert next_job(site, worker)
    assert len(statements) == 16, "\n---\n".join(statements)


@pytest.mark.django_db(transaction=True)
def test_caps_hold_against_many_takes_at_once(user, account, settings):
    """Four hosts of four cores, an account with a cap of five, and at most two jobs of a tier in each environment."""
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 5
    sites = [make_site(f"host{number}") for number in range(4)]
    Environment.objects.update(max_jobs=2)
    FreeTier.objects.update(max_jobs=1)
    bob = make_user("bob")
    make_account("bob's", bob)
    for one in sites:
        for who in (user, bob):
            for _ in range(3):
                submit(who, environment=str(one.environment))
            submit(who, environment=str(one.environment), tier="free")
    workers = [lifecycle.register(one.engine) for one in sites]

    def go(number: int) -> int:
        try:
            taken = 0
            while scheduling.take(sites[number % 4].engine, workers[number % 4]):
                taken += 1
            return taken
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        taken = sum(pool.map(go, range(8)))
    active = Job.objects.filter(status="preparing")
    assert taken == active.count() == 10
    per_account = dict(active.order_by().values_list("account").annotate(Count("pk")))
    assert set(per_account.values()) == {5}
    places = active.order_by().values_list("environment", "tier").annotate(Count("pk"))
    assert all(count <= (2 if tier == "paid" else 1) for _, tier, count in places)
