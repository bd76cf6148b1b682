"""Kills, freezes and outages in great numbers."""

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence

from compute_site.embedded.dockerd import PrivateEngine
from jobs.models import Artifact, Attempt, Job
from tests.chaos.scale import SEED, times
from tests.faults.observing import Cores, Starts
from tests.faults.processes import eventually
from tests.faults.site import FaultSite, Place
from tests.faults.test_kills import SCRIPT, kills
from workers.checkpoint import GATE_POINTS, POINTS


def test_kills_at_every_named_step_with_a_broker_that_forgets(site: FaultSite) -> None:
    with site.beat():
        points = [point for point in POINTS if point not in GATE_POINTS]
        assert kills(site, points * times(5), flushed=True) == []
        assert kills(site, [*POINTS] * times(2), flushed=True, enable_network=True) == []


def test_kills_at_any_moment(site: FaultSite) -> None:
    """500 kills while jobs come in: none lost, none run twice, none without an end, no core in two containers."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    place = site.place(cpu=2)
    jobs: list[Job] = []
    with Starts(site.docker_host) as starts, Cores(site.docker_host) as cores, site.beat():
        for number in range(times(500)):
            jobs += [site.shell(place, SCRIPT) for _ in range(chance.choice((0, 0, 1, 1, 2)))]
            worker = site.worker(place)
            time.sleep(chance.uniform(0.1, 1.5))
            worker.kill()
            if chance.random() < 0.1:
                site.flush_broker()
            if number % 50 == 49:
                print(f"{number + 1} kills, {len(jobs)} jobs")
        settle_down(site, place, jobs)
    assert cores.shared == []
    tell(jobs)
    assert_each_ended_once(site, jobs, starts)


def test_freezes_past_the_lease(site: FaultSite) -> None:
    """200 workers frozen at any moment, another takes over, the first thaws: its late writes change nothing."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    place = site.place(cpu=2)
    jobs: list[Job] = []
    with Starts(site.docker_host) as starts, site.beat():
        for _ in range(times(200)):
            jobs += [site.shell(place, SCRIPT) for _ in range(2)]
            frozen = site.worker(place)
            time.sleep(chance.uniform(0.1, 1.0))
            frozen.signal(signal.SIGSTOP)
            other = site.worker(place)
            time.sleep(chance.uniform(0.3, 1.5))
            frozen.thaw()
            time.sleep(chance.uniform(0.0, 0.5))
            other.kill()
            frozen.kill()
        settle_down(site, place, jobs)
    tell(jobs)
    assert_each_ended_once(site, jobs, starts)


def test_engines_that_end_and_are_killed(site: FaultSite, own_engine: PrivateEngine) -> None:
    """20 TERM and 20 KILL of dockerd with live restore: every exit code and log byte is true."""
    place = site.place(endpoint=own_engine.docker_host)
    site.worker(place)
    with site.beat():
        for number in range(times(40)):
            job = site.shell(place, f"echo {number}; sleep 3; echo end; exit 3")
            site.wait_status(job, "running")
            own_engine.stop_daemon(signal.SIGKILL if number % 2 else signal.SIGTERM)
            own_engine.start(fresh=False)
            site.wait_clean(job, seconds=120)
            found = site.detail(job)
            assert (found["end_reason"], found["exit_code"], found["attempts_made"]) == ("exit_nonzero", 3, 1)
            assert site.log(job).content == f"{number}\nend\n".encode()


def settle_down(site: FaultSite, place: Place, jobs: Sequence[Job]) -> None:
    """Now in peace: a worker that nobody kills."""
    site.worker(place)
    left = Job.objects.filter(pk__in=[job.pk for job in jobs], finished_at__isnull=True)
    eventually(lambda: not left.exists(), 600, words="all jobs end")
    site.wait_clean(*jobs)


def tell(jobs: Sequence[Job]) -> None:
    """The figures, for whoever reads along."""
    rows = Job.objects.filter(pk__in=[job.pk for job in jobs])
    print(f"{len(jobs)} jobs:", dict(Counter(rows.values_list("end_reason", flat=True))))
    print("attempts:", dict(Counter(rows.values_list("attempts_made", flat=True))))


def assert_each_ended_once(site: FaultSite, jobs: Sequence[Job], starts: Starts) -> None:
    """One end, one set of outputs, no container started twice; a poisoned one says so, and there are few of them."""
    poisoned = 0
    for job in jobs:
        row = Job.objects.get(pk=job.pk)
        poisoned += row.end_reason == "worker_lost_too_often"
        assert row.end_reason in ("succeeded", "worker_lost_too_often")
        assert site.events(row).count(row.status) == 1
        assert Artifact.objects.filter(job=row).count() == (row.status == "succeeded")
        counted = starts.of(row.public_id)
        assert set(counted) <= {1}
        assert len(counted) <= Attempt.objects.filter(job=row).count()
        if row.status == "succeeded":
            assert site.log(row).content == b"ran\n"
    assert poisoned <= max(1, len(jobs) // 50)
