"""Why a job waits, told from the rows."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from compute_site.core.db import database_now
from environments import reservations
from environments.editing import declare_gone
from environments.models import Device, Engine, Environment
from environments.setup import create_environment
from jobs.estimate import wait_in_line
from jobs.models import Attempt, Job
from jobs.outcome import Outcome
from jobs.pending import estimated_wait, ordinal, pending_reason
from jobs.settlement import settle
from tests.factories import make_account, make_user, submit, take

CPU, RAM = ("cpu", "own"), ("ram", "own")


NOW = timezone.now()  # one time for all: waits are exact


def wait(job: Job) -> int | None:
    return estimated_wait(Job.objects.select_related("environment__engine__host").get(pk=job.pk), NOW)


def started_at(attempt: Attempt, seconds: float) -> None:
    """It has been running for so long."""
    Attempt.objects.filter(pk=attempt.pk).update(started_at=NOW - timedelta(seconds=seconds))


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


def test_the_host_s_shortage_is_told_as_such(site, user, account):
    other = create_environment(
        site.engine, "other", cpu="4-7", ram_mib=16_384, disk_mib=1000, prices={"cpu": 1}
    )
    take(submit(user, environment=str(other), resources={"ram": 12_000}))
    job = submit(user, resources={"ram": 8000})
    assert reason(job) == (
        "needs 8000 ram, 4384 free: other environments of the host use 12000; first in line"
    )


def test_a_device_that_others_hold_or_that_is_unhealthy(site, user, account):
    for number in range(3):
        Device.objects.create(host=site.host, uuid=f"GPU-{number}", model="H200")
    one, two = (
        create_environment(
            site.engine, name, cpu=cores, ram_mib=1000, disk_mib=1000,
            devices={"gpu": ["GPU-0", "GPU-1", "GPU-2"]}, prices={"gpu": 1},
        )
        for name, cores in (("one", "4-5"), ("two", "6-7"))
    )  # fmt: skip
    take(submit(user, environment=str(two), resources={"gpu": 2}))
    job = submit(user, environment=str(one), resources={"gpu": 2})
    assert reason(job) == "needs 2 gpu, 1 free: other environments of the host use 2; first in line"
    Device.objects.filter(uuid="GPU-2").update(health="unhealthy")
    assert (
        reason(job) == "needs 2 gpu, 0 free, 1 unhealthy: other environments of the host use 2; first in line"
    )
    Device.objects.filter(uuid="GPU-1").update(health="unhealthy")
    assert reason(job) == "needs 2 gpu, 0 free, 2 unhealthy: there are only 1; first in line"
    assert wait(job) is None


def test_the_account_s_cap_is_told_and_hides_nobody(site, user, account, settings):
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 1
    take(submit(user))
    waiting = [submit(user) for _ in range(2)]
    assert reason(waiting[1]) == "1 of at most 1 jobs of the account run; second in line"
    assert wait(waiting[1]) is None
    bob = make_user("bob")
    make_account("bob's", bob)
    assert reason(submit(bob)) == "first in line; about to start"


def test_what_is_kept_for_a_longer_wait(site, user, account):
    running = take(submit(user, resources={"cpu": 3}))
    large = submit(user, resources={"cpu": 4})
    small, free = submit(user), submit(user, tier="free")
    assert reason(small) == "second in line"
    Job.objects.filter(pk=large.pk).update(passed_over_since=database_now() - timedelta(days=1))
    assert reason(large) == "needs 4 cpu, 1 free; first in line"
    assert reason(small) == "what it needs is kept for a job that waited longer; second in line"
    assert reason(free) == "what it needs is kept for a job that waited longer; third in line"
    assert wait(small) is None
    other = create_environment(
        site.engine, "other", cpu="4-7", ram_mib=1000, disk_mib=1000, prices={"cpu": 1}
    )
    assert reason(submit(user, environment=str(other))) == "first in line; about to start"
    assert running.job_id


@pytest.mark.parametrize("why", ["account", "expired", "not yet", "engine"])
def test_nothing_is_kept_for_who_may_not_go_either(site, user, account, settings, why):
    """As at the turns of a worker: a reason that no worker acts upon would be a lie."""
    second = Engine.objects.create(
        host=site.host, name="second", endpoint="unix:///s", state="active", worker_seen_at=database_now()
    )
    other = create_environment(second, "other", cpu="4-7", ram_mib=16_384, disk_mib=1000, prices={"cpu": 1})
    bob = make_user("bob")
    make_account("bob's", bob)
    take(submit(user, resources={"ram": 2000}))
    large = submit(user, environment=str(other), resources={"ram": 16_384})
    Job.objects.filter(pk=large.pk).update(passed_over_since=database_now() - timedelta(days=1))
    small = submit(bob)
    assert reason(small) == "what it needs is kept for a job that waited longer; first in line"
    if why == "account":
        settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 1
    elif why == "expired":
        Job.objects.filter(pk=large.pk).update(queue_expires_at=database_now())
    elif why == "not yet":
        Job.objects.filter(pk=large.pk).update(not_before=database_now() + timedelta(hours=1))
    else:
        Engine.objects.filter(pk=second.pk).update(worker_seen_at=database_now() - timedelta(hours=1))
    assert reason(small) == "first in line; about to start"


def test_who_has_gone_is_not_in_line(site, user, account):
    jobs = [submit(user, max_queue_wait=60) for _ in range(3)]
    Job.objects.filter(pk=jobs[0].pk).update(queue_expires_at=database_now())
    Job.objects.filter(pk=jobs[1].pk).update(not_before=database_now() + timedelta(hours=1))
    assert reason(jobs[2]) == "first in line; about to start"


class TestEstimatedWait:
    def test_nothing_to_wait_for(self, site, user, account):
        assert wait(submit(user)) == 0

    def test_the_deadline_of_what_runs(self, site, user, account):
        attempt = take(submit(user, resources={"cpu": 4}, max_duration=600), "created", "starting", "running")
        job = submit(user, max_duration=100)
        started_at(attempt, 90)
        assert wait(job) == 510
        started_at(attempt, 630)
        assert wait(job) == 0  # it is being stopped
        started_at(attempt, 700)
        assert wait(job) is None  # it does not stop as it should

    def test_all_before_it_run_their_longest(self, site, user, account):
        attempt = take(submit(user, resources={"cpu": 3}, max_duration=600), "created", "starting", "running")
        started_at(attempt, 0)
        submit(user, resources={"cpu": 4}, max_duration=1000)
        job, free = submit(user, resources={"cpu": 2}), submit(user, tier="free")
        assert (wait(job), wait(free)) == (1600, 1600)

    def test_the_most_jobs_at_once_are_waited_for(self, site, user, account):
        Environment.objects.update(max_jobs=1)
        attempt = take(submit(user, max_duration=600), "created", "starting", "running")
        started_at(attempt, 0)
        first, second = submit(user, max_duration=300), submit(user)
        assert (wait(first), wait(second)) == (600, 900)

    def test_what_others_of_the_host_hold_ends_too(self, site, user, account):
        other = create_environment(
            site.engine, "other", cpu="4-7", ram_mib=16_384, disk_mib=1000, prices={"cpu": 1}
        )
        running = submit(user, environment=str(other), resources={"ram": 12_000}, max_duration=60)
        started_at(take(running, "created", "starting", "running"), 0)
        assert wait(submit(user, resources={"ram": 8000})) == 60

    def test_one_that_prepares_has_its_step_before_it(self, site, user, account):
        attempt = take(submit(user, resources={"cpu": 4}, max_duration=600))
        job = submit(user)
        Attempt.objects.filter(pk=attempt.pk).update(step_deadline=NOW + timedelta(seconds=300))
        assert wait(job) == 900

    def test_unknown_is_null(self, site, user, account):
        attempt = take(submit(user, resources={"cpu": 4}), "created", "starting", "running")
        started_at(attempt, 0)
        job = submit(user)
        assert wait(job) == 3600
        with transaction.atomic():
            reservations.revoke(attempt.public_id)
        assert wait(job) is None
        assert wait(attempt.job) is None  # it does not wait

    def test_no_estimate_where_nothing_starts(self, site, user, account):
        job = submit(user)
        Engine.objects.update(worker_seen_at=None)
        assert wait(job) is None

    def test_a_retry_waits_at_least_for_its_time(self, site, user, account):
        job = submit(user)
        Job.objects.filter(pk=job.pk).update(not_before=NOW + timedelta(seconds=7))
        assert wait(job) == 7

    def test_of_a_very_long_line_nothing_is_foretold(self, site, user, account, monkeypatch):
        monkeypatch.setattr("jobs.line.LONGEST", 2)
        monkeypatch.setattr("jobs.estimate.LONGEST", 2)
        jobs = [submit(user) for _ in range(4)]
        assert [wait(job) for job in jobs] == [0, 0, 0, None]


@pytest.mark.parametrize(
    ("room", "ends", "line", "found"),
    [
        ({CPU: 2}, [], [({CPU: 2}, 9)], 0),
        ({CPU: 1}, [], [({CPU: 2}, 9)], None),
        ({CPU: 0}, [(5.2, {CPU: 1}), (9, {CPU: 1})], [({CPU: 1}, 9)], 6),
        ({CPU: 0}, [(9, {CPU: 1}), (5, {CPU: 1})], [({CPU: 2}, 9)], 9),
        ({CPU: -1}, [(-3, {CPU: 2})], [({CPU: 1}, 9)], 0),
        ({CPU: 1}, [], [({CPU: 1}, 10), ({CPU: 1}, 20), ({CPU: 1}, 0)], 30),
        ({CPU: 2, RAM: 1}, [], [({CPU: 1, RAM: 1}, 10), ({CPU: 1}, 99), ({RAM: 1}, 0)], 10),
    ],
)
def test_a_line_played_through(room, ends, line, found):
    assert wait_in_line(room, ends, line) == found


@pytest.mark.parametrize(
    ("number", "word"),
    [(1, "first"), (10, "tenth"), (11, "11th"), (12, "12th"), (21, "21st"), (22, "22nd"), (113, "113th")],
)
def test_ordinals(number, word):
    assert ordinal(number) == word
