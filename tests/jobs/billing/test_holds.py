"""Money of a job from its admission to its end: exact, once, never below zero."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from compute_site.core.db import database_now
from compute_site.core.errors import InsufficientFunds, TransitionRefused
from environments.models import Environment, EnvironmentState, Price
from jobs.billing.cost import Cost, cost
from jobs.billing.holds import close
from jobs.billing.models import Balance, Hold, HoldStatus, LedgerTransaction
from jobs.billing.models.hold import TRANSITIONS
from jobs.cancellation import cancel
from jobs.end_reasons import END_REASONS
from jobs.models import IdempotencyKey, Job, JobEvent, JobStatus
from jobs.outcome import Outcome
from jobs.retention import expire_queued
from jobs.settlement import EXHAUSTED, abandon, record_exit, settle
from tests.factories import make_account, make_user, submit, take


def money_rows() -> list:
    return [list(table.objects.order_by("pk").values()) for table in (Hold, Balance, LedgerTransaction)]


def ran(job: Job):
    """An attempt of the job whose container ran and ended."""
    attempt = take(job, "created", "starting", "running")
    record_exit(attempt, facts={}, exit_code=0, started_at=database_now())
    return attempt


@pytest.mark.parametrize(
    ("max_duration", "cores", "held"), [(30, 1, 1), (60, 1, 1), (61, 1, 2), (600, 2, 20), (90, 4, 8)]
)
def test_the_most_that_it_may_cost_is_held(site, user, account, books, max_duration, cores, held):
    job = submit(user, max_duration=max_duration, resources={"cpu": cores})
    hold = Hold.objects.get()
    assert (hold.job, hold.account, hold.currency, hold.amount, hold.captured, hold.status) == (
        job, account, "credit", held, 0, "open",
    )  # fmt: skip
    assert books.now() == (100, held)
    books.check()


def test_at_least_the_shortest_duration_is_held(site, user, account, books):
    Environment.objects.update(min_job_duration=300)
    submit(user, max_duration=10)
    assert books.now() == (100, 5)


def test_what_costs_nothing_holds_nothing(site, user, account, books):
    submit(user, tier="free", max_duration=600)
    Price.objects.update(per_minute=0)
    submit(user)
    assert not Hold.objects.exists()
    assert books.now() == (100, 0)


def test_without_the_money_nothing_is_admitted(site, user, account, books):
    submit(user, max_duration=3_600)
    before = [list(t.objects.values()) for t in (Job, JobEvent, IdempotencyKey)], money_rows()
    with pytest.raises(
        InsufficientFunds, match=r"needs a hold of 41 credit; the account has 40 free"
    ) as caught:
        submit(user, key="k", max_duration=41 * 60)
    assert (caught.value.status, caught.value.code) == (402, "insufficient_funds")
    assert ([list(t.objects.values()) for t in (Job, JobEvent, IdempotencyKey)], money_rows()) == before
    submit(user, max_duration=40 * 60)
    assert books.now() == (100, 100)
    books.check()


def test_another_currency_or_no_money_at_all_does_not_pay(site, account):
    bob = make_user("bob")
    poor = make_account("bob's", bob)
    poor_books = Balance.objects.filter(account=poor)
    poor_books.update(currency="euro")
    with pytest.raises(InsufficientFunds, match="has 0 free"):
        submit(bob, max_duration=60)


def test_a_price_beyond_all_money_is_refused_and_no_fault(site, user, account):
    Price.objects.update(per_minute=Decimal(10) ** 19)
    with pytest.raises(InsufficientFunds):
        submit(user, max_duration=3_600, resources={"cpu": 4})


def test_prices_are_those_of_admission(site, user, account, books):
    job = submit(user, max_duration=600)
    Price.objects.update(per_minute=50)
    attempt = ran(job)
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=61))
    assert books.now() == (98, 0)
    books.check()


@pytest.mark.parametrize(
    ("seconds", "paid"),
    [(0.0, 1), (1.0, 1), (60.0, 1), (60.1, 2), (599.0, 10), (600.5, 10), (9_999.0, 10), (None, 1)],
)
def test_minutes_are_rounded_up_and_never_exceed_the_hold(site, user, account, books, seconds, paid):
    attempt = ran(submit(user, max_duration=600))
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=seconds))
    hold = Hold.objects.get()
    assert (hold.status, hold.captured, hold.amount) == ("captured", paid, 10)
    assert hold.ended_at is not None
    assert books.now() == (100 - paid, 0)
    capture = LedgerTransaction.objects.get(kind="capture")
    assert capture.job_id == attempt.job_id
    assert {(e.book, e.amount) for e in capture.entries.all()} == {("account", -paid), ("revenue", paid)}
    books.check()


def test_at_least_the_shortest_duration_is_paid(site, user, account, books):
    Environment.objects.update(min_job_duration=300)
    attempt = ran(submit(user, max_duration=600))
    assert settle(attempt, attempt.lease, Outcome("exit_nonzero", exit_code=1, run_seconds=2))
    assert books.now() == (95, 0)


@pytest.mark.parametrize("reason", [name for name, entry in END_REASONS.items() if entry.status != "expired"])
@pytest.mark.parametrize("did_run", [True, False], ids=["ran", "never ran"])
def test_each_end_reason_pays_by_the_table(site, user, account, books, reason, did_run):
    entry = END_REASONS[reason]
    job = submit(user, max_duration=600)
    Job.objects.update(max_attempts=1)  # a fault of ours ends it
    attempt = ran(job) if did_run else take(job)
    if reason == "succeeded" and not did_run:
        attempt = take_to_collecting_unstarted(attempt)
    outcome = Outcome(reason, run_seconds=125 if did_run else None)
    assert settle(attempt, attempt.lease, outcome)
    job.refresh_from_db()
    assert (job.status, job.end_reason) == (entry.status, EXHAUSTED.get(reason, reason))
    paid = 3 if entry.billable and did_run else 0
    hold = Hold.objects.get()
    assert (hold.status, hold.captured) == ("captured" if paid else "released", paid)
    assert books.now() == (100 - paid, 0)
    books.check()


def take_to_collecting_unstarted(attempt):
    """Its end was seen, a start never was."""
    record_exit(attempt, facts={})
    return attempt


@pytest.mark.parametrize("how", ["cancelled", "by the operator", "expired", "retired"])
def test_a_job_that_leaves_the_queue_pays_nothing(site, user, account, books, how):
    job = submit(user, max_duration=600, max_queue_wait=1)
    other = submit(user, max_duration=600, max_queue_wait=1) if how == "expired" else None
    if how in ("cancelled", "by the operator"):
        cancel(job, "ada", operator=how != "cancelled")
    elif how == "expired":
        assert expire_queued(now=database_now() + timedelta(seconds=5)) == 2
    else:
        Environment.objects.update(state=EnvironmentState.RETIRED)
        assert expire_queued() == 1
    assert set(Hold.objects.values_list("status", "captured")) == {("released", Decimal(0))}
    assert books.now() == (100, 0)
    assert other is None or cancel(other, "ada").status == "expired"
    books.check()


@pytest.mark.parametrize(
    ("operator", "reason", "paid"),
    [
        (False, "succeeded", 3),
        (False, "cancelled", 3),
        (True, "succeeded", 0),
        (False, "engine_lost", 0),
        (False, "storage_failed", 0),
    ],
)
def test_a_cancelled_run_pays_for_what_it_ran_unless_the_fault_was_ours(
    site, user, account, books, operator, reason, paid
):
    attempt = ran(submit(user, max_duration=600))
    cancel(attempt.job, "ada", operator=operator)
    assert books.now() == (100, 10)
    assert settle(attempt, attempt.lease, Outcome(reason, run_seconds=125))
    assert books.now() == (100 - paid, 0)
    books.check()


def test_a_retry_keeps_the_hold_and_only_the_last_try_is_paid(site, user, account, books):
    job = submit(user, max_duration=600)
    attempt = ran(job)
    assert settle(attempt, attempt.lease, Outcome("engine_lost", run_seconds=500))
    assert abandon(take(job, "created", "starting"))
    assert books.now() == (100, 10)
    assert Hold.objects.get().status == "open"
    attempt = ran(job)
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=10))
    assert books.now() == (99, 0)
    books.check()


def test_settling_again_captures_nothing_more(site, user, account, books):
    attempt = ran(submit(user, max_duration=600))
    outcome = Outcome("succeeded", exit_code=0, run_seconds=61)
    assert settle(attempt, attempt.lease, outcome)
    before = money_rows()
    assert not settle(attempt, attempt.lease, outcome)
    cancel(attempt.job, "ada")
    with pytest.raises(TransitionRefused), transaction.atomic():
        close(attempt.job, 61)
    assert money_rows() == before


def test_a_settlement_that_is_rolled_back_has_taken_nothing(site, user, account, books):
    attempt = ran(submit(user, max_duration=600))
    before = money_rows()
    with transaction.atomic():
        assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=61))
        transaction.set_rollback(True)
    assert money_rows() == before
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=61))
    assert books.now() == (98, 0)
    books.check()


def test_one_key_one_hold(site, user, account, books):
    for _ in range(3):
        submit(user, key="k", max_duration=600)
    assert books.now() == (100, 10)


def test_jobs_admitted_before_there_was_money_end_without_a_bill(site, user, account, books):
    job = submit(user, max_duration=600)
    Hold.objects.all().delete()
    Balance.objects.update(held=0)
    attempt = ran(job)
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=61))
    assert books.now() == (100, 0)


def test_every_pair_of_a_hold(site, user, account):
    job = submit(user, max_duration=600)
    values: dict[str, dict[str, Any]] = {
        "open": {"captured": 0, "ended_at": None},
        "captured": {"captured": 5, "ended_at": database_now()},
        "released": {"captured": 0, "ended_at": database_now()},
    }
    assert set(TRANSITIONS) == set(HoldStatus.values)
    for source, targets in TRANSITIONS.items():
        Hold.objects.update(status=source, **values[source])
        if targets:
            continue
        before = money_rows()
        for ran_for in (None, 61):
            with pytest.raises(TransitionRefused), transaction.atomic():
                close(job, ran_for)
        assert money_rows() == before


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"amount": 0}, "hold_amount_positive"), ({"captured": 1}, "hold_captured_exactly_when_paid"),
        ({"status": "captured", "captured": 11, "ended_at": "2026-01-01T00:00Z"}, "hold_captured_exactly_when_paid"),
        ({"status": "captured", "ended_at": "2026-01-01T00:00Z"}, "hold_captured_exactly_when_paid"),
        ({"status": "released"}, "hold_ended_exactly_when_final"), ({"status": "lost"}, "hold_"),
    ],
)  # fmt: skip
def test_the_database_refuses_holds_that_make_no_sense(site, user, account, fields, constraint):
    submit(user, max_duration=600)
    before = money_rows()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Hold.objects.update(**fields)
    assert money_rows() == before


def test_cost_so_far_and_in_the_end(site, user, account):
    job = submit(user, max_duration=600)
    now = database_now()
    assert cost(job, now) == Cost("credit", Decimal(0), Decimal(10), False)
    take(job, "created", "starting", "running")
    job = Job.objects.select_related("hold").get()
    assert job.started_at
    for seconds, amount in ((1, 1), (61, 2), (9_999, 10)):
        later = job.started_at + timedelta(seconds=seconds)
        assert cost(job, later) == Cost("credit", Decimal(amount), Decimal(10), False)
    assert cost(submit(user, tier="free"), now) is None


@pytest.mark.django_db(transaction=True)
def test_fifty_at_once_with_money_for_ten(site, user, account, books):
    barrier = Barrier(10)

    def send(number: int) -> bool:
        try:
            if number < 10:
                barrier.wait(30)
            submit(user, max_duration=600)
            return True
        except InsufficientFunds:
            return False
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(send, range(50))) == 10
    assert Job.objects.count() == 10
    assert books.now() == (100, 100)
    books.check()


@pytest.mark.django_db(transaction=True)
def test_cancel_and_expiry_at_once_release_once(site, user, account, books):
    jobs = [submit(user, max_duration=60, max_queue_wait=1) for _ in range(12)]
    bob = make_user("bob")
    make_account("bob's", bob)
    jobs += [submit(bob, max_duration=60, max_queue_wait=1) for _ in range(12)]
    later = database_now() + timedelta(seconds=5)

    def end(number: int) -> None:
        try:
            if number % 4:
                cancel(jobs[number], "ada")
            else:
                expire_queued(now=later)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(end, range(24)))
    expire_queued(now=later)
    assert not Job.objects.filter(status=JobStatus.QUEUED).exists()
    assert set(Hold.objects.values_list("status", flat=True)) == {"released"}
    assert books.now() == (100, 0)
    books.check()


@pytest.mark.django_db(transaction=True)
def test_many_settlements_at_once_capture_once(site, user, account, books):
    attempt = ran(submit(user, max_duration=600))
    barrier = Barrier(6)

    def settle_now(number: int) -> bool:
        try:
            barrier.wait(30)
            return settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=61))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(settle_now, range(6))) == [False] * 5 + [True]
    assert books.now() == (98, 0)
    books.check()
