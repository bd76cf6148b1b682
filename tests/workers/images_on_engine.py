"""An engine's rows and the real engine beside them, with images of the test's own: fixtures for tests of images."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from environments.models import Engine
from jobs.models import Attempt, Job
from tests.factories import make_account, make_site, make_user, submit, take
from tests.workers.sandbox.conftest import needed
from tests.workers.sandbox.registry import running_registry
from workers import beside, images
from workers.engines import Connection, connect, disconnect
from workers.models import Image
from workers.sandbox.docker import ImageFacts
from workers.steps import Run


@dataclass
class Place:
    """One engine with a user who has an account, and a registry with one image."""

    engine: Engine
    link: Connection
    registry: str
    user: Any

    def name(self, tag: str = "1") -> str:
        return f"{self.registry}/good:{tag}"

    def pull(self, tag: str = "1") -> ImageFacts:
        """As a job's pull does it, in this thread."""
        return images._fetch(self.link, self.name(tag), 30)

    def tag(self, image: str, name: str) -> None:
        """As an operator does it."""
        repository, _, tag = name.rpartition(":")
        self.link.client.call("POST", f"/images/{image}/tag", params={"repo": repository, "tag": tag})

    def there(self, name: str) -> bool:
        return self.link.client.image(name) is not None

    def run(self, tag: str = "1", **fields: Any) -> Run:
        """A job of the image that was taken, on its way to step 4."""
        return self.run_of(submit(self.user, image=self.name(tag), **fields))

    def run_of(self, job: Job) -> Run:
        """The job, taken."""
        attempt = take(job)
        assert attempt.lease is not None
        return Run(attempt, attempt.job, attempt.lease, self.link)

    def rows(self) -> list[Image]:
        return list(Image.objects.filter(engine=self.engine))


def again(run: Run) -> Run:
    """The same run as another worker would read it."""
    attempt = Attempt.objects.get(pk=run.attempt.pk)
    attempt.job = Job.objects.get(pk=run.job.pk)
    return Run(attempt, attempt.job, run.lease, run.connection)


def force_remove(place: Place, *names: str) -> None:
    for name in names:
        with suppress(Exception):
            place.link.client.call("DELETE", f"/images/{name}", params={"force": "1"})


def make_place(registry: str) -> Place:
    """The site of the factories on the engine of the tests."""
    site = make_site()
    user = make_user("ada")
    make_account("ada's", user)
    return Place(site.engine, connect(site.engine), registry, user)


@pytest.fixture
def registry(settings: Any) -> Iterator[str]:
    needed("DOCKER_HOST")
    with running_registry(uuid.uuid4().hex) as address:
        settings.ALLOWED_REGISTRIES = [address]
        yield address


def _cleared(place: Place) -> Iterator[Place]:
    yield place
    force_remove(place, place.name(), place.name("2"))
    disconnect(place.engine)


@pytest.fixture
def place(registry: str, db: None) -> Iterator[Place]:
    """In the test's own transaction."""
    yield from _cleared(make_place(registry))


@pytest.fixture
def committed(registry: str, transactional_db: None) -> Iterator[Place]:
    """With rows that other threads see."""
    yield from _cleared(make_place(registry))


def _at_once(once: Any, key: str, work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(work())
    return future


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done beside the steps is done in the test's own thread, and in its transaction."""
    monkeypatch.setattr(beside, "go_on_beside", lambda run, name, then: then(run))
    monkeypatch.setattr(beside.Once, "start", _at_once)


__all__ = ["Place", "again", "committed", "force_remove", "in_turn", "place", "registry"]
