"""Cancelling in every state, as often as one likes, and against a settlement at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections, transaction

from environments.models import Engine
from environments.reservations import release_rest
from jobs import cancellation
from jobs.cancellation import cancel
from jobs.models import Job
from jobs.outcome import Outcome
from jobs.settlement import settle
from tests.factories import submit, take

STATES = {"preparing": [], "running": ["created", "starting", "running"], "collecting": ["collecting"]}


def test_a_queued_job_ends_at_once(site, user, account):
    job = cancel(submit(user), "ada")
    assert (job.status, job.end_reason, job.cancel_requested_by) == ("cancelled", "cancelled", "ada")
    assert job.storage_expires_at is not None
    assert [event.kind for event in job.events.all()] == ["queued", "cancelled"]


def test_an_operators_cancel_has_a_reason_of_its_own(site, user, account):
    assert cancel(submit(user), "root", operator=True).end_reason == "cancelled_by_operator"


@pytest.mark.parametrize("states", STATES.values(), ids=STATES)
def test_a_job_on_an_engine_is_asked_to_stop_and_its_worker_is_told(
    site, user, account, states, monkeypatch, django_capture_on_commit_callbacks
):
    attempt = take(submit(user), *states)
    job = Job.objects.get(pk=attempt.job_id)
    knocked: list[Engine] = []
    monkeypatch.setattr(cancellation, "knock_on_commit", knocked.append)
    asked = cancel(job, "ada")
    assert asked.status == job.status
    assert (asked.cancel_reason, knocked) == ("cancelled", [site.engine])
    again = cancel(job, "bob", operator=True)
    assert (again.cancel_requested_at, again.cancel_requested_by) == (asked.cancel_requested_at, "ada")
    assert len(knocked) == 1
    assert job.events.filter(kind="cancel_requested").count() == 1


def test_a_final_job_stays_as_it_is(site, user, account):
    attempt = take(submit(user), "collecting")
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0))
    before = Job.objects.filter(pk=attempt.job_id).values().get()
    assert cancel(attempt.job, "ada").status == "succeeded"
    assert Job.objects.filter(pk=attempt.job_id).values().get() == before


def test_a_request_made_before_settlement_wins_over_any_outcome(site, user, account):
    attempt = take(submit(user), "collecting")
    cancel(attempt.job, "ada")
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0))
    attempt.refresh_from_db()
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.status, job.end_reason, job.exit_code) == ("cancelled", "cancelled", 0)
    assert (attempt.status, attempt.end_reason) == ("settled", "cancelled")


def test_a_request_wins_over_a_retry(site, user, account):
    attempt = take(submit(user), "created", "starting", "running")
    cancel(attempt.job, "ada")
    assert settle(attempt, attempt.lease, Outcome("engine_lost"))
    attempt.refresh_from_db()
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.status, job.end_reason) == ("cancelled", "cancelled")
    assert (attempt.status, attempt.end_reason) == ("failed", "engine_lost")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("reason", ["succeeded", "engine_lost"])
def test_cancel_and_settle_at_once_end_in_one_state_that_matches(site, user, account, reason):
    for _ in range(8):
        attempt = take(submit(user), "collecting")
        barrier = Barrier(2)

        def at_once(action, barrier=barrier):
            try:
                barrier.wait()
                return action()
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            settled = pool.submit(at_once, lambda a=attempt: settle(a, a.lease, Outcome(reason)))
            cancelled = pool.submit(at_once, lambda a=attempt: cancel(a.job, "ada"))
            assert settled.result()
            cancelled.result()
        job = Job.objects.get(pk=attempt.job_id)
        expected = {"cancelled"} if reason == "engine_lost" else {"succeeded", "cancelled"}
        assert job.status in expected
        assert (job.status == "cancelled") == (job.cancel_requested_at is not None)
        assert job.events.filter(kind__in=["succeeded", "cancelled"]).count() == 1
        _release(attempt)


def _release(attempt) -> None:
    with transaction.atomic():
        release_rest(attempt.public_id, never_started=True)
