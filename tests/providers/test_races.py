"""Two at once: sweeps, rents, budgets. Real threads on real rows."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from compute_site.core.db import advisory_lock
from providers import ending, observing, renting
from providers.budgets import BudgetExceeded
from providers.models import Pod
from tests.providers.conftest import (
    START,
    WANTED,
    ask,
    create_path,
    fresh,
    later,
    make_account,
    row_path,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr("providers.renting.knock", lambda *_: None)


@pytest.fixture
def at_lium(lium, transactional_db):
    return make_account(lium, "lium", max_pods=50)


def at_once(count, action):
    """Start the action in many threads at one moment; results and errors in a list."""
    barrier = threading.Barrier(count)

    def one(number):
        try:
            barrier.wait()
            return action(number)
        except Exception as error:  # noqa: BLE001 - told to whoever started it
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_a_budget_for_three_takes_three_of_eight(at_lium):
    type(at_lium).objects.update(daily_cap=20)  # 6 USD each.
    results = at_once(8, lambda _: renting.ask(at_lium, WANTED)[0])
    assert sum(isinstance(result, Pod) for result in results) == 3
    assert all(isinstance(result, Pod | BudgetExceeded) for result in results)
    assert Pod.objects.count() == 3


def test_one_request_key_makes_one_pod(at_lium):
    results = at_once(5, lambda _: renting.ask(at_lium, WANTED, request_key="k"))
    assert len({pod.pk for pod, _ in results}) == 1
    assert sorted(new for _, new in results) == [False] * 4 + [True]


def test_two_workers_rent_an_intent_once(at_lium, lium):
    pod = ask(at_lium)
    results = at_once(4, lambda _: renting.rent(pod.pk, now=START))
    assert results == [None] * 4
    assert len(lium.seen("POST", create_path(lium))) == 1
    assert fresh(pod).provider_id in lium.pods


def test_two_passes_at_once_count_an_absence_once(at_lium, lium):
    pod = running(at_lium)
    ending.ask_end(pod, "operator", now=START)
    ending.check_pod_terminations(now=START)
    with advisory_lock(f"providers.observe.{at_lium.pk}") as held:
        assert held
        sent = len(lium.requests)
        at_once(2, lambda _: observing.observe_pods(now=START))
        assert len(lium.requests) == sent  # Somebody is at it.
    assert at_once(4, lambda _: observing.observe_pods(now=START)) == [None] * 4
    assert fresh(pod).absent_answers <= len(lium.seen("GET", "/pods")) - 4


def test_two_sweeps_at_once_end_a_pod_once(at_lium, lium):
    pod = running(at_lium)
    assert at_once(4, lambda _: ending.check_pod_terminations(now=later(hours=2))) == [None] * 4
    assert fresh(pod).status == "terminating"
    assert pod.events.filter(kind="terminating").count() == 1
    assert 1 <= len(lium.seen("DELETE", row_path(lium))) <= 4
    assert not lium.pods


def test_an_end_asked_while_it_is_rented_is_never_lost(at_lium, lium):
    pods = [ask(at_lium) for _ in range(4)]

    def rent_and_end(number):
        pod = pods[number // 2]
        return renting.rent(pod.pk, now=START) if number % 2 else ending.ask_end(pod, "operator", now=START)

    at_once(8, rent_and_end)
    ending.check_pod_terminations(now=START)
    for pod in pods:
        assert fresh(pod).status in ("failed", "terminating")
    assert not lium.pods
