"""One attempt's trouble is its own."""

from typing import Any

import pytest

from jobs.models import Attempt
from jobs.transitions import move_attempt
from tests.factories import submit, take
from workers import watcher
from workers.sandbox.docker import EngineUnreachable
from workers.watcher import Watcher


@pytest.fixture
def running(site, user, account) -> list[Attempt]:
    attempts = [take(submit(user), "created", "starting", "running") for _ in range(2)]
    for attempt in attempts:
        Attempt.objects.filter(pk=attempt.pk).update(container_id=attempt.container_name)
    return attempts


def look(monkeypatch: pytest.MonkeyPatch, attempts: list[Attempt], error: Exception) -> list[int]:
    """The attempts that are looked at in a turn in which the first one's look raises `error`."""
    seen = []

    def look_at(self: Watcher, link: Any, attempt: Attempt) -> None:
        seen.append(attempt.pk)
        if len(seen) == 1:
            raise error

    monkeypatch.setattr(Watcher, "_look_at", look_at)
    monkeypatch.setattr(watcher, "connect", lambda engine: object())
    monkeypatch.setattr(watcher, "compare", lambda link: None)
    Watcher(attempts[0].engine)._turn()
    return seen


def test_an_attempt_that_cannot_be_looked_at_keeps_no_other_from_its_time_limit(running, monkeypatch):
    assert sorted(look(monkeypatch, running, OSError("its disk is broken"))) == [row.pk for row in running]


def test_a_silent_engine_ends_the_turn(running, monkeypatch):
    with pytest.raises(EngineUnreachable):
        look(monkeypatch, running, EngineUnreachable("no answer"))


def test_what_ended_while_nobody_watched_is_not_stopped(running, monkeypatch):
    """A worker that comes back late finds an end and a time limit that is over by now: the end was first."""
    first, second = running

    def compare(link: Any) -> None:
        assert move_attempt(first, "collecting")

    seen: list[int] = []
    monkeypatch.setattr(Watcher, "_look_at", lambda self, link, attempt: seen.append(attempt.pk))
    monkeypatch.setattr(watcher, "connect", lambda engine: object())
    monkeypatch.setattr(watcher, "compare", compare)
    Watcher(first.engine)._turn()
    assert seen == [second.pk]
