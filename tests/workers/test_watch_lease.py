"""One of an engine's workers watches it; the others stand by, and take over when it ends or falls silent."""

from datetime import timedelta
from typing import Any

import pytest

from compute_site.core.db import database_now
from environments.models import Engine, SlotSet
from workers import lifecycle, watcher
from workers.watch_lease import WatchLease
from workers.watcher import Watcher


@pytest.fixture
def leases(site: Any) -> list[WatchLease]:
    """Of two workers of one engine."""
    sets = [SlotSet(frozenset({index}), frozenset()) for index in (0, 1)]
    return [WatchLease(lifecycle.register(site.engine, slots)) for slots in sets]


def ask(lease: WatchLease) -> bool:
    """As if it were time again."""
    lease._ask_at = 0.0
    return lease.held()


def test_one_watches_at_a_time(leases):
    assert [ask(lease) for lease in (*leases, *leases)] == [True, False, True, False]


def test_nothing_is_asked_before_it_is_time(leases, django_assert_num_queries):
    first, second = leases
    first.held(), second.held()
    with django_assert_num_queries(0):
        assert [first.held(), second.held()] == [True, False]


def test_another_takes_over_when_the_lease_lapsed(leases, site):
    first, second = leases
    assert ask(first)
    Engine.objects.filter(pk=site.engine.pk).update(watched_until=database_now() - timedelta(seconds=1))
    assert [ask(second), ask(first)] == [True, False]


def test_another_takes_over_at_once_when_the_watching_worker_ended(leases):
    first, second = leases
    assert ask(first)
    lifecycle.stop(first.worker)
    assert [ask(second), ask(first)] == [True, False]


def test_a_superseded_worker_cannot_take_the_watch_back(leases, site):
    first, second = leases
    assert ask(first)
    newcomer = WatchLease(lifecycle.register(site.engine, SlotSet(frozenset({0}), frozenset())))
    assert [ask(first), ask(newcomer), ask(second)] == [False, True, False]
    lifecycle.stop(newcomer.worker), lifecycle.stop(second.worker)
    assert not ask(first)


class Ear:
    """A listener that only counts."""

    open = 0

    def __init__(self, engine: Any, seen: Any) -> None:
        pass

    def start(self) -> None:
        Ear.open += 1

    def stop(self) -> None:
        Ear.open -= 1


def test_who_stands_by_listens_to_nothing_and_lets_the_hands_begin(monkeypatch):
    monkeypatch.setattr(watcher, "Listener", Ear)
    duties = iter([False, False, True, True, False])
    told: list[str] = []
    one = Watcher(Engine(name="local"), lambda: told.append("open"), lambda: next(duties))
    turns = []
    for _ in range(5):
        turns.append((one._takes_its_turn(), Ear.open, len(told)))
    assert turns == [(False, 0, 1), (False, 0, 1), (True, 1, 1), (True, 1, 1), (False, 0, 2)]
