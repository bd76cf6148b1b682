"""Who is asked to look: never too few, and no more than can see something new."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from environments.models import Engine
from workers import hands
from workers.hands import Hands

ENGINE = cast(Engine, SimpleNamespace(pk=-7))
SOON = 10.0  # seconds, never waited in full


class Looks:
    """Looks that take as long as the test wants."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.begun.release()
        assert self.go_on.acquire(timeout=SOON)

    def wait_begun(self) -> bool:
        return self.begun.acquire(timeout=SOON)


@pytest.fixture
def looks() -> Looks:
    return Looks()


def crew_of(threads: int, look) -> Hands:
    crew = Hands(threads, look)
    crew.open()
    return crew


def end(crew: Hands, looks: Looks) -> None:
    looks.go_on.release(100)
    assert crew.stop(SOON)


def test_who_asks_while_others_are_at_work_gets_one_more(looks):
    crew = crew_of(2, looks)
    crew.ask()
    assert looks.wait_begun()
    crew.ask()
    assert looks.wait_begun()
    end(crew, looks)
    assert looks.count == 2


def test_many_asks_before_anybody_begins_are_one(looks):
    crew = crew_of(1, looks)
    crew.ask()
    assert looks.wait_begun()
    for _ in range(10):
        crew.ask()
    looks.go_on.release()
    assert looks.wait_begun()
    looks.go_on.release()
    assert not looks.begun.acquire(timeout=0.1)
    end(crew, looks)
    assert looks.count == 2


def test_an_ask_while_a_look_goes_on_is_never_lost(looks):
    """What turned up after the look began may not have been seen by it."""
    crew = crew_of(1, looks)
    crew.ask()
    assert looks.wait_begun()
    crew.ask()
    looks.go_on.release()
    assert looks.wait_begun()
    end(crew, looks)


def test_nobody_begins_after_the_stop_and_the_stop_waits(looks):
    crew = crew_of(1, looks)
    crew.ask()
    assert looks.wait_begun()
    crew.ask()
    assert not crew.stop(0.1)
    crew.ask()
    end(crew, looks)
    assert looks.count == 1


def test_nobody_begins_before_the_opening_and_who_was_asked_is_not_forgotten(looks):
    crew = Hands(1, looks)
    crew.ask()
    assert not looks.begun.acquire(timeout=0.1)
    crew.open()
    crew.open()
    assert looks.wait_begun()
    end(crew, looks)
    assert looks.count == 1


def test_a_look_that_fails_does_not_stop_the_next(caplog):
    seen = threading.Event()
    faults = [RuntimeError("first")]

    def look() -> None:
        if faults:
            raise faults.pop()
        seen.set()

    crew = crew_of(1, look)
    crew.ask()
    while faults:
        pass
    crew.ask()
    assert seen.wait(SOON)
    assert crew.stop(SOON)
    assert "a step failed" in caplog.text


def test_a_nudge_stays_in_the_worker_s_process_and_is_a_knock_elsewhere(monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(hands, "knock", lambda engine: asked.append("knock"))
    crew: Any = SimpleNamespace(ask=lambda: asked.append("hands"))
    hands.nudge(ENGINE)
    hands.take_on(ENGINE, crew)
    hands.nudge(ENGINE)
    hands.lay_down(ENGINE)
    hands.nudge(ENGINE)
    assert asked == ["knock", "hands", "knock"]
