"""What becomes of an attempt when a step goes wrong in a way that nobody foresaw: it ends, in bounded time, as ours."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.models import Attempt, Job, JobStatus
from tests.factories import submit, take
from workers import cleaning, images, runner
from workers.runner import STORE_TRIES
from workers.sandbox.docker import NameTaken
from workers.steps import Run


@pytest.fixture(autouse=True)
def no_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no engine here, so nothing to clean."""
    monkeypatch.setattr(runner, "clean", lambda run: None)
    monkeypatch.setattr(runner, "nudge", lambda engine: None)


def run_of(attempt: Attempt, client: Any = None) -> Run:
    assert attempt.lease is not None
    link: Any = SimpleNamespace(client=client, engine=attempt.engine)
    return Run(attempt, attempt.job, attempt.lease, link)


def test_a_collection_that_costs_every_worker_its_life_is_given_up(site, user, account, monkeypatch):
    attempt = take(submit(user), "created", "starting", "running", "collecting")
    Attempt.objects.filter(pk=attempt.pk).update(step_tries=STORE_TRIES)
    attempt.refresh_from_db()
    monkeypatch.setattr(runner, "collect_and_settle", lambda run: pytest.fail("tried again"))
    runner.advance(run_of(attempt))
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.status, job.end_reason) == (JobStatus.FAILED, "worker_lost_too_often")


def test_one_try_before_that_is_made(site, user, account, monkeypatch):
    attempt = take(submit(user), "created", "starting", "running", "collecting")
    Attempt.objects.filter(pk=attempt.pk).update(step_tries=STORE_TRIES - 1)
    attempt.refresh_from_db()
    tried: list[Run] = []
    monkeypatch.setattr(runner, "collect_and_settle", tried.append)
    runner.advance(run_of(attempt))
    assert len(tried) == 1
    assert Job.objects.get(pk=attempt.job_id).status == JobStatus.COLLECTING


def test_a_pull_that_fails_in_an_unforeseen_way_ends_the_attempt(site, user, account, monkeypatch):
    attempt = take(submit(user))

    def broken(run: Run) -> None:
        raise ValueError("not a line of progress")

    monkeypatch.setattr(images, "pull", broken)
    runner._continue_after(run_of(attempt), images.pull)
    attempt.refresh_from_db()
    assert (attempt.status, attempt.end_reason) == ("failed", "internal_error")
    assert Job.objects.get(pk=attempt.job_id).status == JobStatus.QUEUED  # it is tried again


class Engine:
    """An engine on which the attempt's image was removed."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []

    def image(self, reference: str) -> Any:
        return None if reference == "sha256:removed" else SimpleNamespace(id="sha256:base")

    def create(self, name: str, body: dict[str, Any]) -> str:
        if self.created:
            raise NameTaken(None)
        self.created.append(body)
        return "0123"


def test_a_name_can_be_held_when_the_image_is_gone_too(site, user, account):
    attempt = take(submit(user))
    attempt.image_id = "sha256:removed"
    engine = Engine()
    cleaning.hold_name(run_of(attempt, engine).connection, attempt)
    assert [body["Image"] for body in engine.created] == ["sha256:base"]
