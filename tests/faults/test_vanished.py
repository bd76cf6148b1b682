"""A container that somebody removed behind our back: its name is held, the attempt is given up, the job goes on."""

from environments.models import Reservation
from jobs.models import Attempt
from tests.faults.site import FaultSite
from workers.engines import client_for


def test_a_container_that_vanished_before_its_start(site: FaultSite) -> None:
    place = site.place()
    worker = site.worker(place, stop_at="created.after:STOP")
    job = site.shell(place, "echo done")
    worker.wait_frozen()
    first = site.attempt(job)
    client = client_for(place.engine)
    client.remove(first.container_id)
    worker.thaw()
    site.wait_clean(job)
    assert site.detail(job)["status"] == "succeeded"
    rows = Attempt.objects.filter(job=job).order_by("number").values_list("status", "end_reason")
    assert list(rows) == [("abandoned", "start_lost"), ("settled", "succeeded")]
    tombstone = client.inspect(first.container_name)
    assert tombstone is not None
    assert (tombstone.status, tombstone.label("tombstone")) == ("created", "1")
    assert not Reservation.objects.filter(released_at=None).exists()


def test_a_container_that_vanished_while_it_ran(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    job = site.shell(place, "[ -e /data/outputs/again ] || sleep 600", max_duration=60)
    running = site.wait_status(job, "running")
    first = site.attempt(running)
    client_for(place.engine).remove(first.container_id)
    site.until(lambda: Attempt.objects.get(pk=first.pk).cleaned_at is not None)
    assert Attempt.objects.get(pk=first.pk).end_reason == "engine_lost"
    site.cancel(job)
    site.wait_clean(job)
    assert site.detail(job)["status"] == "cancelled"
