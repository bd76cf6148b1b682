"""Jobs with a network, as rows: the promise is frozen, and where nobody grants one they wait without holding others up."""

from datetime import timedelta

import pytest
from django.conf import settings

from compute_site.core.db import database_now
from environments.models import Engine, Environment
from environments.setup import create_environment
from jobs.admission import admit
from jobs.cancellation import cancel
from jobs.models import Job
from jobs.obstacles import Obstacles
from jobs.pending import estimated_wait, pending_reason
from jobs.spec import read_spec
from tests.factories import Site, submit, take
from workers import granting, lifecycle, scheduling
from workers.models import Worker


@pytest.fixture
def worker(site: Site) -> Worker:
    return lifecycle.register(site.engine)


@pytest.fixture
def networked(site: Site) -> Site:
    Environment.objects.filter(pk=site.environment.pk).update(enable_network=True)
    site.environment.refresh_from_db()
    return site


def taken(site: Site, worker: Worker) -> Job | None:
    found = scheduling.take(site.engine, worker)
    return found.attempt.job if found else None


def told(job: Job) -> tuple[str | None, int | None]:
    row = Job.objects.select_related("environment__engine__host").get(pk=job.pk)
    return pending_reason(row), estimated_wait(row)


def kept_from(job: Job) -> bool:
    return Obstacles([job.environment], job.account_id, database_now()).is_kept_from(job)


def grant(site: Site, *, granted: bool) -> None:
    Engine.objects.filter(pk=site.engine.pk).update(network_granted=granted)


def test_the_promise_is_that_of_the_admission(networked: Site, user, account):
    job = submit(user)
    Environment.objects.filter(pk=networked.environment.pk).update(enable_network=False)
    without = submit(user)
    Environment.objects.filter(pk=networked.environment.pk).update(enable_network=True)
    assert [Job.objects.get(pk=one.pk).terms["network"] for one in (job, without)] == [True, False]


def test_where_none_is_granted_it_waits_and_the_next_goes_on(networked: Site, user, account, worker):
    first = submit(user)
    Environment.objects.filter(pk=networked.environment.pk).update(enable_network=False)
    second = submit(user)
    reason, wait = told(first)
    assert reason == "engine local was not tried for a network yet; first in line"
    assert wait is None
    assert taken(networked, worker) == second
    assert taken(networked, worker) is None
    first.refresh_from_db()
    assert (first.status, first.passed_over_since) == ("queued", None)
    granting.refuse(networked.engine, "a job behind its gate reaches 192.0.2.7")  # for operators only
    assert told(first) == ("engine local grants no network; first in line", None)
    grant(networked, granted=True)
    assert told(first) == ("first in line; about to start", 0)
    assert taken(networked, worker) == first


def test_others_of_its_account_are_not_looked_for_behind_it(networked: Site, user, account, worker):
    """Also behind more of them than a turn looks at."""
    for _ in range(3):
        submit(user)
    Environment.objects.filter(pk=networked.environment.pk).update(enable_network=False)
    last = submit(user)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.turns.CANDIDATES", 2)
        assert taken(networked, worker) == last


def test_nothing_is_kept_for_one_that_cannot_go(networked: Site, user, account, worker):
    take(submit(user, resources={"cpu": 2}))
    waiting = submit(user, resources={"cpu": 4})
    since = database_now() - timedelta(seconds=settings.MAX_BYPASS_SECONDS + 60)
    Job.objects.filter(pk=waiting.pk).update(passed_over_since=since)
    Environment.objects.filter(pk=networked.environment.pk).update(enable_network=False)
    small = submit(user)
    assert not kept_from(small)
    grant(networked, granted=True)
    assert kept_from(small)
    assert taken(networked, worker) is None
    grant(networked, granted=False)
    assert taken(networked, worker) == small


def test_an_offer_and_a_choice_know_it(networked: Site, user, account, client_api):
    def offer(name: str) -> dict:
        rows = client_api.get("/api/v1/environments").json()
        return next(row for row in rows if row["name"] == name)

    other = create_environment(
        networked.engine, "other", cpu=[4], ram_mib=1024, disk_mib=1024, prices={"cpu": 5}
    )
    assert (offer("local/main")["network"], offer("local/main")["estimated_wait"]) == (True, None)
    assert (offer("local/other")["network"], offer("local/other")["estimated_wait"]) == (False, 0)
    asked = read_spec({"selector": {}, "command": ["true"]})
    assert admit(user=user, spec=asked)[0].environment == other  # dearer, but it can start
    take(Job.objects.get(environment=other))
    assert admit(user=user, spec=asked)[0].environment == other  # it waits there for what will come
    grant(networked, granted=True)
    assert offer("local/main")["estimated_wait"] == 0
    assert admit(user=user, spec=asked)[0].environment == networked.environment


def test_what_wants_a_network(site: Site, user, account):
    assert not granting.wanted(site.engine)
    Environment.objects.filter(pk=site.environment.pk).update(enable_network=True)
    assert granting.wanted(site.engine)
    job = submit(user)
    Environment.objects.filter(pk=site.environment.pk).update(enable_network=False)
    assert granting.wanted(site.engine)
    cancel(job, "ada")
    Environment.objects.filter(pk=site.environment.pk).update(enable_network=True, state="retired")
    assert not granting.wanted(site.engine)
