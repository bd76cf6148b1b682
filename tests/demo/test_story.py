"""The demo follows a job to its end, whatever happens on the way."""

import time
from typing import Any

import pytest

from compute_site.embedded import demo, demo_view
from compute_site.embedded.demo_plan import LIMITS
from compute_site.embedded.progress import Failed

QUEUED = {"status": "queued", "phase": "", "pending_reason": "first in line"}
PREPARING = {"status": "preparing", "phase": "image", "pending_reason": None}
RUNNING = {"status": "running", "phase": "", "pending_reason": None}
COLLECTING = {"status": "collecting", "phase": "", "pending_reason": None, "exit_code": None}
ENDED = {"status": "succeeded", "phase": "", "exit_code": 0, "end_reason": "succeeded", "run_seconds": 1.0}


class Site:
    """A site whose job is in the next of these states at each look, with a log that grows meanwhile."""

    def __init__(self, *states: dict[str, Any], log: tuple[bytes, ...] = ()) -> None:
        self.states = list(states)
        self.pieces = list(log)
        self.offsets: list[int] = []

    def job(self, job_id: str) -> dict[str, Any]:
        return {"id": job_id, **(self.states.pop(0) if len(self.states) > 1 else self.states[0])}

    def log(self, job_id: str, after: int, stream: str = "stdout") -> tuple[bytes, int]:
        self.offsets.append(after)
        piece = self.pieces.pop(0) if self.pieces else b""
        return piece, after + len(piece)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def shown(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(demo_view, "raw_line", lines.append)
    return lines


def test_phases_and_log_are_shown_once_and_in_order(shown):
    site = Site(QUEUED, QUEUED, PREPARING, RUNNING, RUNNING, ENDED, log=(b"", b"one\ntw", b"o\n", b"last"))
    assert demo.watch(site, "j", lambda: None)["status"] == "succeeded"  # type: ignore[arg-type]
    assert [line.split() for line in shown] == [
        ["queued", "first", "in", "line"],
        ["preparing", "image"],
        ["running"],
        ["│", "one"],
        ["│", "two"],
        ["│", "last"],
        ["succeeded", "exit", "code", "0"],
    ]
    assert site.offsets == [0, 0, 6, 8]


def test_what_a_job_said_comes_before_its_end(shown):
    site = Site(RUNNING, COLLECTING, ENDED, log=(b"one\n", b"last words\n", b""))
    demo.watch(site, "j", lambda: None)  # type: ignore[arg-type]
    words = [line.split()[-1] for line in shown]
    assert words == ["running", "one", "words", "collecting", "0"]


def test_a_process_that_ended_ends_the_demo(shown):
    def ended() -> None:
        raise Failed("engine ended by itself with code 1")

    with pytest.raises(Failed, match="engine ended"):
        demo.watch(Site(QUEUED), "j", ended)  # type: ignore[arg-type]


def test_a_job_that_never_moves_ends_the_demo_with_the_reason(shown):
    with pytest.raises(Failed, match=r"Nothing moved for 180 s \(first in line\)"):
        demo.watch(Site(QUEUED), "j", lambda: None)  # type: ignore[arg-type]


def test_a_limit_that_does_not_hold_is_a_failure(shown):
    memory = LIMITS[0]
    killed = {**ENDED, "status": "failed", "end_reason": "killed", "end_detail": "ended by SIGKILL"}
    for state, wrong in ((killed, 1), ({**killed, "end_reason": "out_of_memory"}, 0)):
        site = Site(state, log=(b"holding 112 MiB\n",))
        assert len(demo.limits_at_work(site, [(memory, {"id": "j"})], lambda: None)) == wrong  # type: ignore[arg-type]
        assert shown[-1].endswith("holding 112 MiB")


def offer(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"cpu": {"total": 1}}, "free_tier": None, "prices": [], **fields}


class Offering:
    """A site that offers these environments."""

    def __init__(self, *offers: dict[str, Any]) -> None:
        self.offers = list(offers)

    def environments(self) -> list[dict[str, Any]]:
        return self.offers


def test_jobs_go_to_the_environments_that_were_prepared(shown):
    site = Offering(offer("fleet/shared", free_tier={}), offer("local/large"), offer("local/small"))
    found = demo.offered(site, ["local/large", "local/small"])  # type: ignore[arg-type]
    assert [one["name"] for one in found] == ["local/large", "local/small"]
    assert any("fleet/shared" in line for line in shown)


def test_a_site_that_offers_none_of_them_is_told_what_to_look_at(shown):
    with pytest.raises(Failed, match=r"none of the demo's environments \(local/small\)"):
        demo.offered(Offering(offer("fleet/shared")), ["local/small"])  # type: ignore[arg-type]
