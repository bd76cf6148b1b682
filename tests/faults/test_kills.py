"""kill -9 of workers: anywhere on the path, in the middle of a run, and again and again."""

import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from django.db import connection

from jobs.billing.models import LedgerTransaction
from jobs.models import Artifact, AttemptStatus, Job
from tests.faults.observing import Starts
from tests.faults.processes import WorkerProcess, eventually
from tests.faults.site import FaultSite, Place
from workers.checkpoint import GATE_POINTS, POINTS
from workers.models import Worker

AT_ONCE = 5
# Where the next worker has most to find out by itself; every point has its turn in the long form.
FLUSHED = ("take.after", "create.after", "start.after", "running.after", "exit.after", "settle.after")
SCRIPT = "echo ran; echo content > /data/outputs/file"
STOPPED = "echo ran; echo content > /data/outputs/file; trap 'exit 0' TERM; sleep 60 & wait"


def test_a_running_container_is_adopted_by_the_next_worker(site: FaultSite) -> None:
    place = site.place()
    with Starts(place.engine.endpoint) as starts:
        first = site.worker(place)
        job = site.shell(place, "echo before; sleep 2; echo after; echo $$ > /data/outputs/file")
        site.wait_status(job, "running")
        (container,) = site.containers(job)
        first.kill()
        assert site.containers(job) == [container]
        site.worker(place)
        site.wait_clean(job)
    found = site.detail(job)
    assert (found["status"], found["attempts_made"]) == ("succeeded", 1)
    assert starts.of(job.public_id) == [1]
    assert site.attempt(job).container_id == container
    assert site.log(job).content == b"before\nafter\n"
    assert Artifact.objects.filter(job=job).count() == 1
    assert [row.status for row in Worker.objects.filter(engine=place.engine).order_by("pk")] == [
        "lost",
        "online",
    ]


def test_a_kill_at_every_step_leads_to_one_end_and_leaves_nothing(site: FaultSite) -> None:
    points = [point for point in POINTS if point not in GATE_POINTS]
    assert kills(site, points, flushed=False) == []


def test_the_same_when_the_broker_forgets_everything(site: FaultSite) -> None:
    with site.beat():
        assert kills(site, FLUSHED, flushed=True) == []


def kills(site: FaultSite, points: Sequence[str], *, flushed: bool, **fields: Any) -> list[str]:
    """A kill at each of the points, some at once, each on an engine row of its own; returns what went wrong.

    `fields` are those of the environments.
    """
    places = [site.place(**fields) for _ in points]
    with Starts(site.docker_host) as starts, ThreadPoolExecutor(AT_ONCE) as pool:
        faults = pool.map(
            lambda pair: killed_at(site, pair[0], pair[1], flushed, starts), zip(places, points, strict=True)
        )
        return [fault for fault in faults if fault]


def killed_at(site: FaultSite, place: Place, point: str, flushed: bool, starts: Starts) -> str:
    """Kill the place's worker at the point and let another go on; returns what is wrong then, or nothing."""
    try:
        worker = site.worker(place, stop_at=point)
        stopped = point.startswith("stop.")
        job = site.shell(place, STOPPED if stopped else SCRIPT)
        if stopped:
            site.wait_status(job, "running")
            site.cancel(job)
        worker.wait_dead()
        if flushed:
            site.flush_broker()
        site.worker(place)
        site.wait_clean(job)
        reason = "cancelled" if stopped else "succeeded"
        expected = {
            "end_reason": reason,
            "attempts_made": 1,
            "starts": [1],
            "files": 1,
            "log": b"ran\n",
            "ends": 1,
            "bill": ["captured", 1, 1],  # the hold, what was paid of it, how often
        }
        found = {
            "end_reason": site.detail(job)["end_reason"],
            "attempts_made": site.detail(job)["attempts_made"],
            "starts": starts.of(job.public_id),
            "files": Artifact.objects.filter(job=job).count(),
            "log": site.log(job).content,
            "ends": site.events(job).count("cancelled" if stopped else "succeeded"),
            "bill": [job.hold.status, job.hold.captured, LedgerTransaction.objects.filter(job=job).count()],
        }
        return "" if found == expected else f"{point}: {found}\n{site.worker_log(place)}"
    except AssertionError as error:
        return f"{point}: {error}\n{site.worker_log(place)}"
    finally:
        connection.close()


def test_a_job_that_costs_its_worker_s_life_each_time_ends_and_others_go_on(site: FaultSite) -> None:
    poisoned, other = site.place(), site.place()
    site.worker(other)
    job = site.shell(poisoned, SCRIPT)
    beside = site.shell(other, SCRIPT)
    killed = 0
    while job.status != "failed":
        worker = site.worker(poisoned, stop_at="create.before")
        eventually(partial(dead_or_done, site, worker, job))
        if worker.dead:
            killed += 1
        assert killed <= 3
        job.refresh_from_db()
    assert job.end_reason == "worker_lost_too_often"
    assert killed == 3
    after = site.shell(poisoned, SCRIPT)
    site.worker(poisoned)
    site.wait_clean(job, beside, after)
    assert site.detail(after)["end_reason"] == site.detail(beside)["end_reason"] == "succeeded"


def dead_or_done(site: FaultSite, worker: WorkerProcess, job: Job) -> bool:
    return worker.dead or site.if_in(job, "failed") is not None


def test_a_frozen_worker_is_superseded_and_its_late_writes_change_nothing(site: FaultSite) -> None:
    for point in ("create.before", "start.after", "collect.after"):
        place = site.place()
        with Starts(place.engine.endpoint) as starts:
            frozen = site.worker(place, stop_at=f"{point}:STOP")
            job = site.shell(place, SCRIPT)
            frozen.wait_frozen()
            site.worker(place)
            site.wait_clean(job)
            ended = (site.detail(job), site.events(job), list(Artifact.objects.values()))
            assert ended[0]["status"] == "succeeded", point
            frozen.thaw()
            frozen.wait_dead()
            assert (site.detail(job), site.events(job), list(Artifact.objects.values())) == ended, point
        assert starts.of(job.public_id) == [1], point
        assert site.attempt(job).status == AttemptStatus.SETTLED


def test_a_step_that_was_taken_over_is_not_ended_by_its_first_owner(site: FaultSite) -> None:
    """Both at the same point: only the lease tells whose write counts."""
    for point, status in (("create.after", "preparing"), ("collect.after", "collecting")):
        place = site.place()
        first = site.worker(place, stop_at=f"{point}:STOP")
        job = site.shell(place, SCRIPT)
        first.wait_frozen()
        second = site.worker(place, stop_at=f"{point}:STOP")
        second.wait_frozen()
        first.thaw()
        first.wait_dead()
        assert site.attempt(job).status == status, point
        assert site.attempt(job).lease is not None, point
        second.thaw()
        site.wait_clean(job)
        assert site.detail(job)["end_reason"] == "succeeded", point


def test_a_worker_frozen_past_its_lease_loses_its_step(site: FaultSite) -> None:
    place = site.place()
    frozen = site.worker(place)
    job = site.shell(place, "sleep 1; echo ran")
    site.wait_status(job, "running")
    frozen.signal(signal.SIGSTOP)
    with site.beat():
        eventually(lambda: Worker.objects.get(engine=place.engine).status == "lost", 30)
    site.worker(place)
    site.wait_clean(job)
    frozen.thaw()
    frozen.wait_dead()
    assert site.detail(job)["end_reason"] == "succeeded"
