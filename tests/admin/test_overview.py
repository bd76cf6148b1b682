"""The Overview: true figures, a fixed number of statements, shown only to who may see everything."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from compute_site.core.db import database_now
from compute_site.core.models import new_public_id
from compute_site.overview import DAY, first_id, read_overview
from compute_site.overview_page import SEES
from environments import reservations
from environments.models import Device, Engine, SlotSet
from jobs.models import Job
from jobs.outcome import Outcome
from jobs.settlement import settle
from tests.admin.rows import RUN, make_rows, rent
from tests.factories import make_user, submit, take
from workers import granting
from workers.lifecycle import mark_lost, register
from workers.models import Worker

STATEMENTS = 15


def end(job: Job, reason: str, seconds: float = 60) -> None:
    attempt = take(job, *RUN, "collecting")
    settle(attempt, attempt.lease, Outcome(reason, run_seconds=seconds))
    with transaction.atomic():
        reservations.lock_host(attempt.engine.host_id or 0)
        reservations.release_rest(attempt.public_id, never_started=True)


def test_an_empty_site_is_told_what_to_do(operator):
    found = read_overview()
    assert (found.queued, found.running, found.oldest_wait, found.failures, found.silent) == (
        0,
        0,
        None,
        0,
        0,
    )
    assert (found.spend, found.offers, found.machines, len(found.hours)) == ([], [], [], 24)
    text = operator.get("/admin/").content.decode()
    for words in ("nobody waits", "No environment yet", "No host yet", "No engine yet"):
        assert words in text


def test_what_it_counts(site, user, account):
    end(submit(user), "exit_nonzero")
    end(submit(user), "exit_nonzero")
    end(submit(user), "time_limit", seconds=120)
    end(submit(user), "succeeded")
    take(submit(user), *RUN)
    waiting = submit(user)
    submit(user)
    rent(1, user)
    now = database_now()
    Job.objects.filter(pk=waiting.pk).update(created_at=now - timedelta(minutes=5))
    found = read_overview(now)
    assert (found.queued, found.running) == (2, 1)
    assert found.oldest_wait == timedelta(minutes=5)
    assert found.failed == [("exit_nonzero", 2), ("time_limit", 1)]
    assert [job.end_reason for job in found.last_failures] == ["time_limit", "exit_nonzero", "exit_nonzero"]
    assert sum(hour.ended for hour in found.hours) == 4
    assert sum(hour.failed for hour in found.hours) == 3
    assert found.spend == [("credit", Decimal(5))]
    assert (found.pods.live, found.pods.alarms) == (1, 0)
    assert found.pods.per_hour == 3
    assert Decimal(3) <= found.pods.so_far < Decimal("3.01")
    assert [(engine.name, alive) for engine, alive in found.engines] == [("local", True)]
    [(environment, uses)] = found.offers
    assert (environment, {use.slug: use.used for use in uses}["cpu"]) == (site.environment, 1)
    [machine] = found.machines
    assert [place.holder is not None for place in machine.cores] == [True] + [False] * 7


def test_what_is_a_day_old_is_not_counted(site, user, account):
    end(submit(user), "exit_nonzero")
    later = read_overview(database_now() + DAY + timedelta(minutes=1))
    assert (later.failures, later.spend, later.last_failures) == (0, [], [])


def test_an_engine_that_grants_no_network_is_told_there_and_on_its_page(site, operator):
    assert "grants no network" not in operator.get("/admin/").content.decode()
    granting.refuse(site.engine, "the kernel has no tables")
    text = operator.get("/admin/").content.decode()
    assert 'title="the kernel has no tables">grants no network<' in text
    page = operator.get(reverse("admin:environments_engine_change", args=[site.engine.pk])).content.decode()
    assert "the kernel has no tables" in page


def test_an_engine_without_a_worker_is_silent(site):
    Engine.objects.update(worker_seen_at=None)
    assert read_overview().silent == 1
    Engine.objects.update(state="disabled")
    assert read_overview().silent == 0


def test_a_worker_that_fell_silent_beside_a_live_one_is_told(site, operator):
    """Until somebody has its slots; the same ones again are one silence, not two."""
    here, half = (
        register(site.engine, SlotSet(frozenset({4}), frozenset())),
        SlotSet(frozenset({0, 1}), frozenset()),
    )
    assert read_overview().missed == []
    for _ in range(2):
        gone = register(site.engine, half)
        Worker.objects.filter(pk=gone.pk).update(heartbeat_at=gone.started_at - timedelta(hours=1))
        silent = read_overview()
        assert (silent.missed, silent.silent) == ([gone], 1)
        assert mark_lost() == [gone.pk]
        assert read_overview().missed == [gone]
    text = operator.get("/admin/").content.decode()
    assert "1 silent" in text
    assert f"{site.engine} {gone.short_id}" in text
    assert here.short_id not in text
    register(site.engine, half)
    assert read_overview().missed == []


def test_its_card_counts_workers_and_not_engines(site, operator):
    """Two share the engine; a third has ended."""
    for cores in ({0, 1}, {2, 3}, {4}):
        last = register(site.engine, SlotSet(frozenset(cores), frozenset()))
    Worker.objects.filter(pk=last.pk).update(status="stopped", ended_at=last.started_at)
    assert (len(read_overview().engines), read_overview().alive) == (1, 2)
    card = operator.get("/admin/overview/").content.decode().split(">Workers</a>")[1]
    assert card.split("</p>")[0].strip() == '<p class="cs-figure">2'
    Worker.objects.update(heartbeat_at=last.started_at - timedelta(hours=1))
    assert read_overview().alive == 0


def test_ids_are_ordered_by_time():
    now = timezone.now()
    assert first_id(now - timedelta(seconds=5)) < new_public_id() < first_id(now + timedelta(seconds=5))


@pytest.mark.parametrize("fleet", [False, True])
def test_few_statements_however_many_rows(operator, statements, settings, fleet):
    settings.FLEET_ENABLED = fleet
    make_rows(0, 1)
    few, count = statements.of(read_overview)
    make_rows(1, 3)
    more, same = statements.of(read_overview)
    assert (len(few.machines), len(more.machines)) == (1, 4)
    assert same == count <= STATEMENTS


def test_it_shows_and_links(site, user, account, operator):
    end(submit(user), "exit_nonzero")
    attempt = take(submit(user), *RUN)
    Device.objects.create(host=site.host, uuid="GPU-1234abcd", health="unhealthy")
    first, again = operator.get("/admin/"), operator.get("/admin/overview/")
    assert (first.status_code, again.status_code) == (200, 200)
    assert 'hx-get="/admin/overview/"' in first.content.decode()
    for text in (first.content.decode(), again.content.decode()):
        for words in ("exit nonzero", "1 of 4", "1234abcd", "none silent", "1 credit"):
            assert words in text, words
        assert reverse("admin:jobs_job_of_attempt", args=[attempt.public_id]) in text
        assert f"/admin/jobs/job/{Job.objects.earliest('pk').pk}/change/" in text


def test_who_may_not_see_everything_sees_none_of_it(site, user, account, client):
    staff = make_user("staff")
    staff.is_staff = True
    staff.save()
    for name in SEES[:-1]:
        staff.user_permissions.add(Permission.objects.get(codename=name.split(".")[1]))
    client.force_login(staff)
    assert "cs-overview" not in client.get("/admin/").content.decode()
    assert client.get("/admin/overview/").status_code == 403
    client.logout()
    answer = client.get("/admin/overview/")
    assert (answer.headers["HX-Redirect"], answer.content) == ("/admin/", b"")
    client.force_login(user)
    assert client.get("/admin/overview/").content == b""
