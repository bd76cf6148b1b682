"""Broker, engine and host fail while jobs wait and run."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from celery import current_app

from compute_site.embedded.dockerd import PrivateEngine
from compute_site.embedded.valkey import find_program
from environments.editing import declare_gone
from environments.models import Engine
from jobs.cancellation import cancel
from jobs.models import JobEvent
from tests.faults.fixtures import SITE_ID
from tests.faults.observing import Starts
from tests.faults.processes import eventually
from tests.faults.site import FaultSite
from workers import reclaim
from workers.engines import connect
from workers.sandbox import cgroup

INTERFACES = "grep -c eth0 /proc/net/dev; true"


class Broker:
    """A Valkey that can be down: each start is on the same port, with nothing kept."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(find_program()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/")
        eventually(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of the test's own, which this process uses too."""
    own = Broker()
    own.start()
    with used(own.url):
        yield own
    own.stop()


@contextmanager
def used(url: str) -> Iterator[None]:
    """Celery in this process speaks to `url`."""
    before = current_app.conf.broker_url
    try:
        switch(url)
        yield
    finally:
        switch(before)


def switch(url: str) -> None:
    """The pools of connections belong to the broker before."""
    current_app.conf.update(broker_url=url)
    vars(current_app.amqp)["_producer_pool"] = vars(current_app)["_pool"] = None


def test_a_job_submitted_while_the_broker_is_down_runs_when_it_is_back(
    site: FaultSite, broker: Broker
) -> None:
    place = site.place()
    site.worker(place, CELERY_BROKER_URL=broker.url)
    first = site.shell(place, "true")
    site.wait_clean(first)
    running = site.shell(place, "sleep 2; echo went on")
    site.wait_status(running, "running")
    broker.stop()
    began = time.monotonic()
    waiting = site.shell(place, "true")
    assert time.monotonic() - began < 5
    assert site.detail(waiting)["status"] == "queued"
    broker.start()
    with site.beat():
        site.wait_clean(running, waiting)
    assert site.log(running).content == b"went on\n"
    assert {site.detail(job)["end_reason"] for job in (first, running, waiting)} == {"succeeded"}


def test_a_container_survives_a_restart_of_its_engine(site: FaultSite, own_engine: PrivateEngine) -> None:
    place = site.place(endpoint=own_engine.docker_host)
    gated = site.place(endpoint=own_engine.docker_host, enable_network=True)
    site.worker(place)
    site.worker(gated)
    networked = site.shell(gated, f"sleep 4; {INTERFACES}")
    site.wait_status(networked, "running")
    job = site.shell(place, "echo before; sleep 4; echo after; exit 3")
    site.wait_status(job, "running")
    (container,) = site.containers(job)
    own_engine.restart()
    assert site.containers(job) == [container]
    with site.beat():
        site.wait_clean(job, networked)
    found = site.detail(networked)
    assert (found["end_reason"], found["attempts_made"]) == ("succeeded", 1)
    assert site.log(networked).content == b"1\n"  # its network outlived the engine, behind the same gate
    found = site.detail(job)
    assert (found["end_reason"], found["exit_code"], found["attempts_made"]) == ("exit_nonzero", 3, 1)
    assert site.log(job).content == b"before\nafter\n"


def test_a_job_submitted_while_the_engine_is_down_waits_and_says_why(
    site: FaultSite, own_engine: PrivateEngine
) -> None:
    place = site.place(endpoint=own_engine.docker_host)
    site.worker(place)
    site.wait_clean(site.shell(place, "true"))
    own_engine.stop_daemon()
    try:
        eventually(lambda: Engine.objects.get(pk=place.engine.pk).unreachable_since, 30)
        job = site.shell(place, "true")
        time.sleep(1)
        found = site.detail(job)
        assert found["status"] == "queued"
        assert f"engine {place.engine.name} does not answer since" in found["pending_reason"]
    finally:
        own_engine.start(fresh=False)
    with site.beat():
        site.wait_clean(job)
    assert site.detail(job)["end_reason"] == "succeeded"


def test_an_engine_that_takes_its_containers_along_is_never_the_job_s_fault(
    site: FaultSite, own_engine: PrivateEngine
) -> None:
    own_engine.live_restore = False
    own_engine.restart()
    places = [site.place(endpoint=own_engine.docker_host, enable_network=on) for on in (True, False)]
    for place in places:
        site.worker(place)
    jobs = [site.shell(place, f"sleep 3; {INTERFACES}") for place in places]
    for job in jobs:
        site.wait_status(job, "running")
    own_engine.restart()
    with site.beat():
        site.wait_clean(*jobs)
    for job, interfaces in zip(jobs, (b"1\n", b"0\n"), strict=True):
        found = site.detail(job)
        assert (found["status"], found["attempts_made"]) == ("succeeded", 2)
        assert [row["end_reason"] for row in found["attempts"]] == ["engine_lost", "succeeded"]
        assert site.log(job).content == interfaces


def test_two_beats_do_each_thing_once(site: FaultSite) -> None:
    place = site.place(cpu=2)
    with Starts(place.engine.endpoint) as starts, site.beat(), site.beat():
        jobs = [site.shell(place, "true") for _ in range(6)]
        expired = site.shell(place, "true", max_queue_wait=1)
        site.wait_status(expired, "expired")
        site.worker(place)
        site.wait_clean(*jobs)
    assert {tuple(starts.of(job.public_id)) for job in jobs} == {(1,)}
    assert starts.of(expired.public_id) == []
    assert JobEvent.objects.filter(job=expired, kind="expired").count() == 1


def test_what_ran_on_a_host_declared_gone_is_ended_once(site: FaultSite) -> None:
    place = site.place()
    worker = site.worker(place)
    job = site.shell(place, "sleep 60")
    site.wait_status(job, "running")
    worker.kill()
    attempt = site.attempt(job)
    assert reclaim.reclaim_gone_hosts() == 0  # a lost worker is not a lost host
    assert declare_gone(place.host, "ada")
    assert reclaim.reclaim_gone_hosts() == 1
    assert reclaim.reclaim_gone_hosts() == 0
    attempt.refresh_from_db()
    assert (attempt.status, attempt.end_reason) == ("failed", "engine_lost")
    job = site.wait_status(job, "queued", seconds=1)
    cancel(job, "ada")
    assert place.client.remove(attempt.container_id)  # by hand: nobody goes there any more
    connect(place.engine).workspace(attempt.container_name).destroy()
    assert cgroup.remove(cgroup.parent(SITE_ID, str(attempt.public_id)))
