"""A pod's row: its states, its budget, and the path from intent to terminated."""

import itertools
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction

from compute_site.core.db import database_now
from compute_site.core.errors import IdempotencyConflict
from compute_site.embedded.fakes import Fault
from providers import ending, renting
from providers.budgets import BudgetExceeded, cost_so_far
from providers.errors import CostGuardrailError
from providers.lium import Lium
from providers.models import FINAL, TRANSITIONS, Pod, PodStatus
from providers.transitions import move_pod
from tests.providers.conftest import (
    START,
    WANTED,
    ask,
    check,
    create_path,
    fresh,
    later,
    observe,
    rent,
    row_path,
    running,
    there,
)


def snapshot(pod):
    return Pod.objects.filter(pk=pod.pk).values().get()


def test_every_pair_of_a_pod(at_lium):
    pod = ask(at_lium)
    for source, to in itertools.product(PodStatus.values, repeat=2):
        finished = database_now() if source in FINAL else None
        Pod.objects.filter(pk=pod.pk).update(status=source, finished_at=finished, deadline=START)
        before, events = snapshot(pod), pod.events.count()
        done = move_pod(pod, to)
        assert done == (to in TRANSITIONS[source]), (source, to)
        if done:
            assert (snapshot(pod)["finished_at"] is not None) == (to in FINAL)
            assert pod.events.count() == events + 1
        else:
            assert (snapshot(pod), pod.events.count()) == (before, events)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"status": "failed"}, "pod_finished_exactly_when_final"),
        ({"finished_at": START}, "pod_finished_exactly_when_final"),
        ({"status": "odd"}, "pod_"),
        ({"status": "requested"}, "pod_deadline_once_requested"),
        ({"price_cap": 0}, "pod_caps_positive"),
        ({"committed_cost": 1}, "pod_caps_positive"),
        ({"lifetime_hours": 0}, "pod_caps_positive"),
    ],
)
def test_the_database_refuses_what_must_not_be(at_lium, fields, name):
    pod = ask(at_lium)
    with pytest.raises(IntegrityError, match=name), transaction.atomic():
        Pod.objects.filter(pk=pod.pk).update(**fields)


def test_from_intent_to_terminated(either):
    fake, account = either
    pod = ask(account)
    assert (pod.status, pod.committed_cost, fake.requests) == ("intent", Decimal(6), [])
    pod = rent(account)
    assert (pod.status, pod.deadline, pod.known_ids) == ("provisioning", later(hours=2), [])
    assert list(there(fake)) == [pod.provider_id]
    observe(times=2)
    assert fresh(pod).status == "running"
    check(later(hours=2, seconds=-1))
    assert fresh(pod).status == "running"
    check(later(hours=2))
    pod = fresh(pod)
    assert (pod.status, pod.end_reason, there(fake)) == ("terminating", "deadline", {})
    for answers in (1, 2):
        observe(later(hours=2, minutes=answers))
        assert (fresh(pod).status, fresh(pod).absent_answers) == ("terminating", answers)
    observe(later(hours=2, minutes=3))
    assert fresh(pod).status == "terminated"
    assert [event.kind for event in pod.events.all()] == [
        "intent", "requested", "provisioning", "running", "terminating", "terminated",
    ]  # fmt: skip


def test_the_row_is_there_before_the_create(at_lium, lium):
    seen = []
    rented = lium._rent

    def look(request, executor_id):
        seen.append(request.body["pod_name"])
        return rented(request, executor_id)

    lium._rent = look
    pod = rent(at_lium)
    assert seen == [pod.name]
    assert pod.created_at <= START
    assert next(one.path for one in lium.requests) == "/pods"  # What exists is noted before anything else.


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_pods": 1}, "1 of 1 pods"),
        ({"daily_cap": 11}, "daily cap is 11 USD, 6 are committed; this pod needs 6"),
        ({"monthly_cap": Decimal("11.99")}, "monthly cap is 11.99"),
    ],
)
def test_a_budget_is_kept_on_what_is_committed(at_lium, lium, fields, words):
    type(at_lium).objects.update(**fields)
    first = rent(at_lium)
    sent = len(lium.requests)
    with pytest.raises(BudgetExceeded, match=words):
        ask(at_lium)
    assert Pod.objects.get().pk == first.pk
    assert len(lium.requests) == sent


def test_a_pod_that_surely_never_was_costs_nothing(at_lium, lium):
    type(at_lium).objects.update(daily_cap=6)
    pod = ask(at_lium)
    ending.ask_end(pod, "operator")
    assert (fresh(pod).status, lium.requests) == ("failed", [])
    assert ask(at_lium)


def test_what_a_pod_can_have_cost_counts_after_its_end(at_lium, lium):
    pod = running(at_lium)
    Pod.objects.filter(pk=pod.pk).update(status="terminated", finished_at=later(hours=1))
    assert cost_so_far(fresh(pod), START) == Decimal(3)
    type(at_lium).objects.update(daily_cap=Decimal("8.9"))
    with pytest.raises(BudgetExceeded, match="3 are committed"):
        ask(at_lium)
    type(at_lium).objects.update(daily_cap=9)
    assert ask(at_lium)


def test_an_account_that_may_not_rent(at_targon, targon):
    for fields in ({"accepts_no_provider_clock": False}, {"enabled": False}, {"sealed_key": ""}):
        type(at_targon).objects.update(
            **{"accepts_no_provider_clock": True, "enabled": True, "sealed_key": "x", **fields}
        )
        with pytest.raises(CostGuardrailError):
            ask(at_targon)
    assert not Pod.objects.exists()
    assert targon.requests == []


def test_the_same_request_key_is_the_same_pod(at_lium):
    first, new = renting.ask(at_lium, WANTED, request_key="k")
    again, newer = renting.ask(at_lium, WANTED, request_key="k")
    assert (first.pk, new, newer) == (again.pk, True, False)
    with pytest.raises(IdempotencyConflict):
        renting.ask(at_lium, {**WANTED, "max_lifetime_hours": 3}, request_key="k")
    assert Pod.objects.count() == 1


def test_sold_out_stays_queued_until_it_waited_too_long(either):
    fake, account = either
    pod = rent(account, gpu_type="B200")
    assert (pod.status, pod.deadline, there(fake)) == ("intent", None, {})
    sent = len(fake.requests)
    renting.rent_due(now=later(seconds=10))
    assert len(fake.requests) == sent
    renting.rent_due(now=later(seconds=31))
    assert len(fake.requests) > sent
    renting.rent_due(now=later(minutes=31))
    assert (fresh(pod).status, fresh(pod).end_reason) == ("failed", "waited_too_long")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 402}, "insufficient_credit"),
        ({"status": 429}, "rate_limited"),
        ({"status": 422}, "provider_error"),
        ({"status": 403, "body": b"<html>"}, ("firewall_refused", "permission_refused")),
    ],
    ids=str,
)
def test_a_refusal_is_surely_nothing(either, fault, reason):
    fake, account = either
    fake.faults.append(Fault("POST", create_path(fake), times=9, **fault))
    pod = rent(account)
    assert pod.status == "failed"
    assert pod.end_reason in reason
    renting.rent_due(now=later(minutes=5))
    assert len(fake.seen("POST", create_path(fake))) == 1


def test_a_listing_that_fails_before_the_rent_leaves_the_intent(at_lium, lium):
    lium.faults.append(Fault("GET", "/pods"))
    pod = rent(at_lium)
    assert (pod.status, lium.seen("POST", ".*")) == ("intent", [])
    renting.rent_due(now=later(minutes=1))
    assert fresh(pod).status == "provisioning"


def test_an_end_asked_during_the_rent_ends_what_arrives(at_lium, lium, monkeypatch):
    pod = ask(at_lium)
    rent_it = Lium._rent

    def rent_and_ask(self, *arguments):
        ending.ask_end(pod, "operator", now=START)
        assert fresh(pod).status == "requested"
        return rent_it(self, *arguments)

    monkeypatch.setattr(Lium, "_rent", rent_and_ask)
    renting.rent(pod.pk, now=START)
    assert (fresh(pod).status, fresh(pod).end_reason, len(lium.pods)) == ("terminating", "operator", 1)
    check(START)
    assert not lium.pods


def test_lium_the_removal_time_is_sent_again_once_running(at_lium, lium):
    pod = running(at_lium)
    told = lium.pods[pod.provider_id]["removal_scheduled_at"]
    assert told == "2026-03-14T14:00:00Z"
    assert len(lium.seen("POST", ".*/schedule-removal")) == 1
    observe()
    assert len(lium.seen("POST", ".*/schedule-removal")) == 1
    lium.pods[pod.provider_id]["removal_scheduled_at"] = "2026-03-15T00:00:00Z"
    lium.faults.append(Fault("POST", ".*/schedule-removal"))
    observe(times=2)
    assert lium.pods[pod.provider_id]["removal_scheduled_at"] == told


@pytest.mark.parametrize("price", [2.51, 3.01, 99])
def test_price_drift(at_lium, lium, price):
    pod = running(at_lium)
    lium.pods[pod.provider_id]["price"] = price
    observe()
    pod = fresh(pod)
    over = price > 3
    assert (pod.status, pod.end_reason) == (("terminating", "price_too_high") if over else ("running", ""))
    assert pod.price_per_hour == Decimal(str(price))


@pytest.mark.parametrize("word", ["STOPPED", "FAILED", "suspended", "error", "SOMETHING_NEW"])
def test_ended_at_the_provider_is_not_gone(either, word):
    fake, account = either
    pod = running(account)
    row = there(fake)[pod.provider_id]
    if "state" in row:
        row["state"]["status"] = word
    else:
        row["status"] = word
    observe()
    assert (fresh(pod).status, fresh(pod).end_reason) == ("terminating", "ended_at_provider")
    check(START)
    assert len(fake.seen("DELETE", row_path(fake))) == 1


@pytest.mark.parametrize("why", ["account_disabled", "budget"])
def test_what_else_ends_a_pod(either, why):
    fake, account = either
    pod = running(account)
    fields = {"enabled": False} if why == "account_disabled" else {"daily_cap": Decimal("2.9")}
    type(account).objects.filter(pk=account.pk).update(**fields)
    check(later(hours=1))
    assert (fresh(pod).status, fresh(pod).end_reason, there(fake)) == ("terminating", why, {})


def test_one_account_that_fails_stops_no_other(at_lium, at_targon, lium, targon):
    first, second = running(at_lium), running(at_targon)
    lium.faults.append(Fault("DELETE", ".*", times=99))
    type(at_lium).objects.filter(pk=at_lium.pk).update(sealed_key="1:site:broken")
    check(later(hours=2))
    assert not targon.workloads
    assert [fresh(pod).status for pod in (first, second)] == ["terminating", "terminating"]
    at_lium.refresh_from_db()
    assert "cannot be opened" in at_lium.trouble
