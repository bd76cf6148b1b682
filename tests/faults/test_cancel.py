"""Cancel in every state: the job ends cancelled, once, and no container of it is there afterwards."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from tests.faults.observing import Starts
from tests.faults.site import FaultSite

# Where the worker is frozen while the cancel comes, and whether the container has run by then.
FROZEN = {
    "take.after": False,
    "image.after": False,
    "workspace.after": False,
    "create.before": False,
    "create.after": False,
    "created.after": False,
    "allow.after": True,  # the start was allowed before the cancel came
    "start.after": True,
    "running.after": True,
    "exit.before": True,
    "exit.after": True,
    "collect.before": True,
    "collect.after": True,
}


def test_a_cancel_at_every_step_ends_the_job_cancelled(site: FaultSite) -> None:
    places = {point: site.place() for point in FROZEN}
    with Starts(places["take.after"].engine.endpoint) as starts, ThreadPoolExecutor(5) as pool:
        found = dict(
            zip(
                FROZEN,
                pool.map(lambda point: cancelled_at(site, places[point], point, starts), FROZEN),
                strict=True,
            )
        )
    expected = {point: ("cancelled", "cancelled", 1, [1] if ran else []) for point, ran in FROZEN.items()}
    assert found == expected


def cancelled_at(site, place, point, starts):
    """Freeze the place's worker at the point, cancel, let it go on."""
    try:
        worker = site.worker(place, stop_at=f"{point}:STOP")
        job = site.shell(
            place, "sleep 60" if point in ("start.after", "running.after", "allow.after") else "true"
        )
        worker.wait_frozen()
        site.cancel(job)
        worker.thaw()
        site.wait_clean(job)
        site.cancel(job)
        row = site.detail(job)
        assert site.containers(job) == []
        return row["status"], row["end_reason"], site.events(job).count("cancelled"), starts.of(job.public_id)
    except AssertionError as error:
        return f"{error}\n{site.worker_log(place)}"
    finally:
        connection.close()


def test_a_queued_job_that_is_cancelled_never_runs(site: FaultSite) -> None:
    place = site.place()
    with Starts(place.engine.endpoint) as starts:
        job = site.shell(place, "true")
        site.cancel(job)
        assert site.detail(job)["status"] == "cancelled"
        site.worker(place)
        other = site.shell(place, "true")
        site.wait_clean(other)
    assert starts.of(job.public_id) == []
    assert site.detail(job)["status"] == "cancelled"


@pytest.mark.parametrize(
    "script", ["sleep 60", "trap '' TERM; while :; do sleep 1; done"], ids=["obeys", "ignores"]
)
def test_a_running_job_is_stopped_within_the_grace(site: FaultSite, script: str) -> None:
    place = site.place()
    site.worker(place)
    job = site.shell(place, f"echo kept; {script}")
    site.wait_status(job, "running")
    site.until(lambda: site.log(job).content == b"kept\n")
    site.cancel(job)
    site.wait_clean(job, seconds=15)
    found = site.detail(job)
    assert (found["status"], found["attempts"][0]["stop_reason"]) == ("cancelled", "cancelled")
    assert found["run_seconds"] < 12
    assert site.log(job).content == b"kept\n"


def test_a_final_job_stays_as_it_is(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    job = site.shell(place, "true")
    site.wait_clean(job)
    before = site.detail(job)
    site.cancel(job)
    assert site.detail(job) == before
