"""Where steps meet in the database: what one waited for is seen, nobody waits in a circle, what failed is let go."""

import threading
import time
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import Q

from compute_site.core.errors import StaleToken
from compute_site.core.models import new_public_id
from jobs.models import Attempt, AttemptStatus, Job, JobStatus
from jobs.settlement import record_exit
from jobs.transitions import move_attempt
from tests.factories import make_account, make_site, make_user, submit, take
from workers import lifecycle, runner, steps
from workers.sandbox import readback
from workers.steps import Run


class FakeClient:
    """An engine that says yes."""

    def start(self, container_id: str) -> None:
        pass


class FakeConnection:
    client = FakeClient()


@pytest.fixture
def attempt(transactional_db: None) -> Attempt:
    """An attempt whose container was just created."""
    make_site()
    user = make_user("ada")
    make_account("ada's", user)
    return take(submit(user), "created")


def run_of(attempt: Attempt) -> Run:
    assert attempt.lease is not None
    return Run(attempt, attempt.job, attempt.lease, FakeConnection(), body={"Image": ""})  # type: ignore[arg-type]


def beside(what: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Run `what` in a thread with a connection of its own."""
    faults: list[BaseException] = []

    def go() -> None:
        try:
            what()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            faults.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=go)
    thread.start()
    return thread, faults


def wait_for_a_waiter() -> None:
    """Until some other connection waits for a lock of ours."""
    end = time.monotonic() + 10
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while time.monotonic() < end:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # else one transaction sees one state
            cursor.execute(waiting)
            if cursor.fetchone() != (0,):
                return
        time.sleep(0.01)
    pytest.fail("nobody waits")


def test_a_lease_that_is_lost_while_the_start_waits_for_the_row_does_not_allow_the_start(
    attempt, monkeypatch
):
    monkeypatch.setattr(readback, "differences", lambda body, raw: [])
    monkeypatch.setattr(readback, "effective", lambda raw, **_: {})
    run = run_of(attempt)
    with transaction.atomic():
        Attempt.objects.filter(pk=attempt.pk).update(lease=new_public_id())
        thread, faults = beside(lambda: steps._allow(run, {}))
        wait_for_a_waiter()
    thread.join()
    assert [type(fault) for fault in faults] == [StaleToken]
    attempt.refresh_from_db()
    assert attempt.status == AttemptStatus.CREATED


def test_a_cancel_forbids_the_start(attempt, monkeypatch):
    monkeypatch.setattr(readback, "differences", lambda body, raw: [])
    monkeypatch.setattr(readback, "effective", lambda raw, **_: {})
    Job.objects.filter(pk=attempt.job_id).update(
        cancel_requested_at=attempt.created_at, cancel_reason="cancelled", cancel_requested_by="ada"
    )
    with pytest.raises(steps.Cancelled):
        steps._allow(run_of(attempt), {})
    attempt.refresh_from_db()
    assert attempt.status == AttemptStatus.CREATED


def test_a_guard_through_a_join_is_refused(attempt):
    with pytest.raises(ValueError, match="Exists"):
        move_attempt(
            attempt, AttemptStatus.STARTING, guard=Q(job__cancel_requested_at__isnull=True), effective={}
        )
    attempt.refresh_from_db()
    assert attempt.status == AttemptStatus.CREATED


def test_a_start_and_the_exit_of_a_quick_job_do_not_wait_for_each_other(attempt):
    """The exit has the job's row and wants the attempt's: a start that had taken the attempt's first would be a circle."""
    assert move_attempt(attempt, AttemptStatus.STARTING)
    attempt.refresh_from_db()
    run = run_of(attempt)
    with transaction.atomic():
        Job.objects.select_for_update(no_key=True).get(pk=attempt.job_id)
        thread, faults = beside(lambda: steps._start(run, "created"))
        wait_for_a_waiter()
        assert record_exit(attempt, facts={}, exit_code=0)
    thread.join()
    assert [type(fault) for fault in faults] == [StaleToken]
    attempt.refresh_from_db()
    assert attempt.status == AttemptStatus.COLLECTING
    assert Job.objects.get(pk=attempt.job_id).status == JobStatus.COLLECTING


def test_only_leases_that_a_thread_is_at_are_renewed(attempt):
    worker = lifecycle.register(attempt.engine)
    lease = attempt.lease
    Attempt.objects.filter(pk=attempt.pk).update(lease_worker=worker.pk, lease_until=attempt.created_at)
    assert lifecycle.heartbeat(worker)
    attempt.refresh_from_db()
    assert attempt.lease_until == attempt.created_at
    with lifecycle.at_work(lease), lifecycle.at_work(lease):
        with lifecycle.at_work(lease):
            pass
        assert lifecycle.heartbeat(worker)
    attempt.refresh_from_db()
    assert attempt.lease_until > attempt.created_at
    before = attempt.lease_until
    assert lifecycle.heartbeat(worker)
    attempt.refresh_from_db()
    assert attempt.lease_until == before


def test_a_step_whose_database_went_away_is_let_go_of(attempt, monkeypatch):
    def broken(run: Run) -> None:
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(runner, "_advance", broken)
    runner.advance(run_of(attempt))
    attempt.refresh_from_db()
    assert (attempt.lease, attempt.status) == (None, AttemptStatus.CREATED)
    assert attempt.not_before is not None
