"""What has gone wrong in other systems of this kind, and is told by no other file of this folder."""

import pytest
from django.utils import timezone

from environments.models import Host
from jobs import retention
from jobs.billing.models import Hold
from jobs.models import Artifact, Attempt, Job
from tests.factories import make_account, make_user, submit, take
from tests.fleet.test_assignment import lapse
from workers import lifecycle, reclaim, repair
from workers.fleet import manifest
from workers.fleet.client import RefusedRequest, result_body
from workers.fleet.models import Audit, Fault, FleetPolicy, Replica, Unit
from workers.fleet.passes import run_pass

pytestmark = pytest.mark.django_db


def rows(*models):
    """Every column of every row, for a comparison before and after."""
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_the_same_key_of_two_accounts_is_two_units_and_a_lie_stays_where_it_was(fleet):
    bea = make_user("bea")
    make_account("bea's", bea)
    first = fleet.job(key="epoch-1", outputs=["answer.txt"])
    second = submit(bea, key="epoch-1", environment="fleet/gpu", outputs=["answer.txt"])
    workers = [fleet.worker() for _ in range(4)]
    run_pass()
    one, two = (Unit.objects.get(attempt__job=job) for job in (first, second))
    for number, worker in enumerate(workers):
        (mine,) = worker.pull()
        lie = f"lie {number}".encode()
        worker.report(mine, text=lie if mine["unit"] == str(one.public_id) else b"42")
    assert Unit.objects.get(pk=one.pk).status == "disputed"
    assert Unit.objects.get(pk=two.pk).status == "completed"
    second.refresh_from_db()
    assert second.status == "succeeded"
    assert Audit.objects.get().unit == one
    assert not Fault.objects.filter(unit=two).exists()


def test_progress_keeps_a_replica_that_takes_longer_than_its_lease(fleet):
    a = fleet.worker()
    FleetPolicy.objects.update(replicas=1)
    fleet.job()
    run_pass()
    (mine,) = a.pull()
    fleet.worker()  # who would get it
    for _ in range(3):
        lapse(Replica.objects.get())
        a.progress(mine)  # before the pass
        run_pass()
    replica = Replica.objects.get()
    assert (replica.worker, replica.status, replica.tries, replica.lapses) == (a.row, "running", 1, [])


def test_a_program_without_outputs_has_a_manifest_too(fleet):
    a, b = fleet.worker(), fleet.worker()
    job = fleet.job()
    run_pass()
    found, sha256 = manifest.build(0, [])
    for worker in (a, b):
        (mine,) = worker.pull()
        body = result_body(worker.client, mine, manifest=found, sha256=sha256, contents={}, run_seconds=None)
        worker.client.call("POST", f"/workers/assignments/{mine['id']}/result", body)
    job.refresh_from_db()
    assert (job.status, job.exit_code) == ("succeeded", 0)


def test_local_repairs_and_the_fleet_never_touch_each_other(fleet):
    local = take(submit(fleet.user), "created", "starting", "running")
    a = fleet.worker()
    fleet.job()
    run_pass()
    a.pull()
    run_pass()
    Attempt.objects.update(lease=None, lease_until=timezone.now())  # as a dead worker of ours leaves it
    before = rows(Job, Attempt, Unit, Replica, Hold)
    for _ in range(3):
        repair.repair_knocks()
        lifecycle.mark_lost()
        reclaim.reclaim_gone_hosts()
        retention.expire_queued()
        run_pass()
    assert rows(Job, Attempt, Unit, Replica, Hold) == before
    Host.objects.update(declared_gone_at=timezone.now())
    assert reclaim.reclaim_gone_hosts() == 1  # the local one alone
    local.refresh_from_db()
    assert local.end_reason == "engine_lost"
    assert rows(Unit, Replica) == before[2:4]


@pytest.mark.parametrize("texts", [(b"42", b"42"), (b"42", b"43")])
def test_a_late_post_never_changes_what_was_judged(fleet, texts):
    FleetPolicy.objects.update(replicas=3)
    job = fleet.job(outputs=["answer.txt"])
    a, b, late = (fleet.worker() for _ in range(3))
    run_pass()
    (one,), (two,), (three,) = a.pull(), b.pull(), late.pull()
    a.report(one, text=texts[0])
    b.report(two, text=texts[1])
    if texts[0] == texts[1]:
        late.fail(three, reason="time_limit")  # accepted as degraded
    job.refresh_from_db()
    assert job.is_final
    before = rows(Job, Unit, Replica, Audit, Artifact)
    for post in (late.report, late.fail, late.progress):
        with pytest.raises(RefusedRequest) as refused:
            post(three)
        assert refused.value.status == 409
    run_pass()
    assert rows(Job, Unit, Replica, Audit, Artifact) == before
