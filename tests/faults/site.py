"""A whole site on the test database: engines on a real Docker, a client with a token, workers as processes."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import close_old_connections
from django.db.models import QuerySet
from rest_framework.test import APIClient

from compute_site.core.models import save_clean
from environments.detection import record_engine, record_host
from environments.editing import activate_engine
from environments.models import Engine, EngineState, Environment, Host
from environments.setup import create_environment
from jobs import retention
from jobs.models import Attempt, Job
from jobs.models.job import FINAL
from tests.faults.processes import WorkerProcess, Zygote, eventually
from workers import lifecycle, repair
from workers.engines import client_for, disconnect
from workers.registration import register_engine
from workers.sandbox.docker import EngineClient, EngineFacts

BEAT = 0.3  # seconds: the site's periodic actions, far more often than in real life


@dataclass
class Place:
    """One engine row of a test, with its environment `main` and the workers that the test starts on it."""

    engine: Engine
    environment: Environment
    client: EngineClient
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def host(self) -> Host:
        assert self.engine.host is not None
        return self.engine.host


class FaultSite:
    """What a test does to the site, and what it then reads of it."""

    def __init__(self, api: APIClient, docker_host: str, image: str, zygote: Zygote, folder: Path) -> None:
        self.api = api
        self.docker_host = docker_host
        self.image = image
        self.environment = zygote.environment  # of its processes
        self.places: list[Place] = []
        self._zygote = zygote
        self._folder = folder
        self._numbers = itertools.count(1)
        self.probed: dict[str, tuple[Engine, EngineFacts]] = {}

    # -- engines and workers

    def place(
        self, *, cpu: int = 1, ram: int = 1024, disk: int = 4096, endpoint: str = "", **fields: Any
    ) -> Place:
        """A new active engine row, registered for real, on a host row of its own, with an environment `main`."""
        name = f"{self._folder.name}-{next(self._numbers)}"
        engine = self._register(name, endpoint or self.docker_host)
        environment = create_environment(
            engine, "main", cpu=cpu, ram_mib=ram, disk_mib=disk, prices={"cpu": 1}, **fields
        )
        activate_engine(engine)
        engine.refresh_from_db()
        place = Place(engine, environment, client_for(engine))
        self.places.append(place)
        return place

    def _register(self, name: str, endpoint: str) -> Engine:
        """The first row of an endpoint is probed; the others are written from what that found, which takes seconds."""
        if endpoint not in self.probed:
            engine, _ = register_engine(name, endpoint, name)
            with closing(client_for(engine)) as client:
                self.probed[endpoint] = (engine, client.facts())
            return engine
        probed, facts = self.probed[endpoint]
        host = save_clean(Host(name=name))
        engine = save_clean(Engine(name=name, host=host, endpoint=endpoint))
        record_host(host, facts)
        record_engine(engine, facts, probed, probed.facts)
        return engine

    def worker(
        self, place: Place, stop_at: str = "", *, options: Sequence[str] = (), **settings: Any
    ) -> WorkerProcess:
        """A new worker process of the place; it may stop itself at a checkpoint."""
        log = self._log_of(place)
        worker = self._zygote.fork(place.engine.name, *options, log=log, stop_at=stop_at, **settings)
        place.workers.append(worker)
        return worker

    def worker_log(self, place: Place) -> str:
        """What the workers of the place have said."""
        log = self._log_of(place)
        return log.read_text(errors="replace") if log.exists() else ""

    def _log_of(self, place: Place) -> Path:
        return self._folder / f"{place.engine.name}.log"

    @contextmanager
    def beat(self) -> Iterator[None]:
        """The site's periodic actions, as beat and the site's worker do them, in a thread."""
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(BEAT):
            repair.repair_knocks()
            lifecycle.mark_lost()
            retention.expire_queued()
            close_old_connections()

    # -- jobs

    def submit(self, place: Place, *command: str, status: int = 201, **fields: Any) -> Job:
        """Submit a job over REST: one core, 64 MiB of memory and of disk, the image with a shell, unless told otherwise."""
        body = {
            "environment": str(place.environment),
            "image": self.image,
            "command": list(command),
            "resources": {"cpu": 1, "ram": 64, "disk": 64},
            "max_duration": 60,
            **fields,
        }
        answer = self.api.post("/api/v1/jobs", body)
        assert answer.status_code == status, answer.content
        return Job.objects.get(public_id=answer.json()["id"])

    def shell(self, place: Place, script: str, **fields: Any) -> Job:
        """Submit a shell script."""
        return self.submit(place, "sh", "-c", script, **fields)

    def cancel(self, job: Job) -> None:
        assert self.api.post(f"/api/v1/jobs/{job.public_id}/cancel").status_code == 200

    def detail(self, job: Job) -> dict[str, Any]:
        """The job as a client reads it."""
        answer = self.api.get(f"/api/v1/jobs/{job.public_id}")
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        return found

    def log(self, job: Job, stream: str = "stdout", **query: Any) -> Any:
        """The answer with the bytes of a stream."""
        answer = self.api.get(f"/api/v1/jobs/{job.public_id}/logs", {"stream": stream, **query})
        assert answer.status_code == 200, answer.content
        return answer

    def wait_status(self, job: Job, *statuses: str, seconds: float = 40) -> Job:
        """Wait until the job is in one of `statuses`."""
        return self._wait(job, lambda row: row.status in statuses, seconds, f"is {' or '.join(statuses)}")

    def until(self, what: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until `what` is so."""
        eventually(what, seconds)

    def if_in(self, job: Job, *statuses: str) -> Job | None:
        """The job if it is in one of `statuses` now."""
        return Job.objects.filter(pk=job.pk, status__in=statuses).first()

    def wait_final(self, job: Job, seconds: float = 40) -> Job:
        """Wait until the job is final."""
        return self._wait(job, lambda row: row.status in FINAL, seconds, "is final")

    def wait_clean(self, *jobs: Job, seconds: float = 40) -> None:
        """Wait until the jobs are final and nothing of any of their attempts is left."""
        for job in jobs:
            self.wait_final(job, seconds)
            left = Attempt.objects.filter(job=job, cleaned_at__isnull=True)
            eventually(partial(_none, left), seconds, words=f"job {job} is cleaned")

    def _wait(self, job: Job, right: Callable[[Job], bool], seconds: float, words: str) -> Job:
        def look() -> Job | None:
            row = Job.objects.get(pk=job.pk)
            return row if right(row) else None

        try:
            found: Job = eventually(look, seconds, words=f"job {job} {words}")
        except AssertionError as late:
            row = Job.objects.get(pk=job.pk)
            tries = [(a.number, a.status, a.step_tries, a.leftover, a.end_detail) for a in row.attempts.all()]
            raise AssertionError(
                f"{late}; it is {row.status} {row.phase} {row.end_reason}, tries {tries}"
            ) from None
        return found

    def attempt(self, job: Job) -> Attempt:
        """The job's last attempt."""
        found = job.attempts.last()
        assert found is not None
        return found

    def events(self, job: Job) -> list[str]:
        return list(job.events.values_list("kind", flat=True))

    def containers(self, job: Job) -> list[str]:
        """Ids of the containers on the engine that are labelled as the job's."""
        (place,) = [place for place in self.places if place.environment.pk == job.environment_id]
        listed = place.client.list_site(settings.SITE_ID)
        return [facts.id for facts in listed if facts.label("job") == str(job.public_id)]

    # -- the broker

    def flush_broker(self) -> None:
        """What a restart of Valkey without persistence does: every message is gone."""
        with current_app.connection_for_write() as connection:
            channel: Any = connection.default_channel
            channel.client.flushdb()

    # -- the end

    def end_test(self) -> None:
        """Kill the workers of the test and put its engines out of use."""
        for place in self.places:
            for worker in place.workers:
                worker.kill()
            place.client.close()
            disconnect(place.engine)
            Engine.objects.filter(pk=place.engine.pk).update(state=EngineState.DISABLED)
        self.places.clear()


def _none(rows: QuerySet[Any]) -> bool:
    return not rows.exists()
