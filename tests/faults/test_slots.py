"""Two real workers of one engine, each with a core of its own: both hear of work, and one goes on for the other."""

from environments.models import Engine
from jobs.models import Attempt
from tests.faults.site import FaultSite, Place
from workers.models import Worker


def watching(place: Place) -> int | None:
    """The process that watches the engine now."""
    key = Engine.objects.values_list("watcher", flat=True).get(pk=place.engine.pk)
    return None if key is None else Worker.objects.get(pk=key).pid


def test_two_workers_share_an_engine_and_one_ends_what_the_other_began(site: FaultSite) -> None:
    place = site.place(cpu=2)
    workers = {core: site.worker(place, options=("--cores", str(core))) for core in (0, 1)}
    site.until(lambda: Worker.objects.filter(engine=place.engine, status="online").count() == 2)
    jobs = [site.shell(place, "sleep 3; echo done > /data/outputs/file") for _ in workers]
    taken: dict[int, Attempt] = {}
    for job in jobs:
        site.wait_status(job, "running")
        attempt = site.attempt(job)
        taken[attempt.cores[0]] = attempt
    assert sorted(taken) == [0, 1]
    assert all(worker.pid != workers[1 - core].pid for core, worker in workers.items())
    (first,) = [worker for worker in workers.values() if worker.pid == watching(place)]
    first.kill()
    site.wait_clean(*jobs)
    assert [site.detail(job)["status"] for job in jobs] == ["succeeded", "succeeded"]
    assert [site.attempt(job).number for job in jobs] == [1, 1]
    assert watching(place) not in (None, first.pid)
