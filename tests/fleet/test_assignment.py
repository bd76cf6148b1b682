"""Units and their replicas: who may have one, who loses one, and that nobody has one twice."""

import threading
from datetime import timedelta

import pytest
from django.db import IntegrityError, close_old_connections, transaction

from compute_site.core.db import database_now
from compute_site.core.errors import NotAdmitted
from jobs.admission import admit
from jobs.billing.models import Account
from jobs.cancellation import cancel
from jobs.models import Attempt, JobEvent
from jobs.pending import pending_reason
from jobs.spec import read_spec
from tests.bundles import function
from tests.factories import make_account, make_user, submit, take
from workers.fleet import assignment, leases
from workers.fleet.client import RefusedRequest
from workers.fleet.models import FleetPolicy, RemoteWorker, Replica, Unit
from workers.fleet.passes import run_pass
from workers.fleet.transitions import move_replica

pytestmark = pytest.mark.django_db


def replicas(**where):
    return list(Replica.objects.filter(**where).order_by("number").values_list("status", flat=True))


def lapse(replica, field="lease_until"):
    Replica.objects.filter(pk=replica.pk).update(**{field: database_now() - timedelta(seconds=1)})


def test_a_job_becomes_a_unit_once(fleet):
    job = fleet.job()
    run_pass()
    run_pass()
    unit = Unit.objects.get()
    assert (unit.status, replicas()) == ("pending", ["waiting", "waiting"])
    assert unit.waits_for.startswith("2 of 2 replicas wait")
    job.refresh_from_db()
    assert (job.status, job.phase, job.attempts_made) == ("preparing", "waiting for workers", 1)
    assert pending_reason(job) == unit.waits_for
    assert job.events.filter(kind="waits").count() == 1
    assert Attempt.objects.get().engine == fleet.environment.engine


def test_the_client_is_told_what_its_unit_waits_for(fleet, client):
    client.force_login(fleet.user)
    job = fleet.job()

    def told():
        return [
            client.get(f"/api/v1/jobs/{job.public_id}").json()[name] for name in ("phase", "pending_reason")
        ]

    assert told() == ["", "about to become a unit of the fleet"]
    first = fleet.worker()
    run_pass()
    text = "1 of 2 replicas wait for an active worker of another owner that fits"
    assert told() == ["waiting for workers", text]
    fleet.worker()
    run_pass()
    assert told() == ["given to workers", None]
    first.pull()
    assert told() == ["", None]


def test_distinct_owners_and_one_worker_of_each(fleet):
    first = fleet.worker()
    second_of_first = fleet.worker(owner=first)
    fleet.job()
    run_pass()
    assert replicas() == ["assigned", "waiting"]  # two workers of one owner are one
    run_pass()
    assert replicas() == ["assigned", "waiting"]
    other = fleet.worker()
    run_pass()
    assert replicas() == ["assigned", "assigned"]
    assert Unit.objects.get().waits_for == ""
    owners = set(Replica.objects.values_list("owner", flat=True))
    assert owners == {first.owner.pk, other.owner.pk}
    waiting = Replica.objects.create(unit=Unit.objects.get(), number=3)
    with pytest.raises(IntegrityError, match="fleet_replica_one_per_owner"), transaction.atomic():
        move_replica(waiting, "assigned", worker=second_of_first.row, owner=first.owner,
                     deadline=database_now(), lease_until=database_now())  # fmt: skip


def test_no_self_evaluation_even_as_only_capacity(fleet):
    fleet.worker(account=fleet.account)
    job = fleet.job()
    run_pass()
    assert replicas() == ["waiting", "waiting"]
    FleetPolicy.objects.update(degrade_after=0)
    run_pass()
    assert replicas() == ["waiting", "waiting"]
    job.refresh_from_db()
    assert job.status == "preparing"


def test_capabilities_and_slots(fleet):
    small = fleet.worker(active=False)
    small.register(capabilities={"cpu": 1, "ram": 64, "disk": 64})
    small.beat()
    fleet.job(resources={"cpu": 2, "ram": 128, "disk": 64})
    run_pass()
    assert replicas() == ["waiting", "waiting"]
    able = fleet.worker()
    run_pass()
    assert replicas() == ["assigned", "waiting"]
    fleet.job()
    run_pass()  # `able` has one slot; the second job has the small one
    assert Replica.objects.filter(worker=able.row).count() == 1
    assert Replica.objects.filter(worker=small.row).count() == 1


def test_pull_gives_each_replica_once_under_threads(transactional_fleet):
    fleet = transactional_fleet
    remote = fleet.worker(active=False)
    remote.register(capabilities={"cpu": 4, "ram": 8192, "disk": 20_000, "slots": 8})
    remote.beat()
    for _ in range(8):
        fleet.job()
    run_pass()
    assert Replica.objects.filter(status="assigned").count() == 8
    found: list[int] = []
    gate, row = threading.Barrier(4), remote.row

    def ask():
        gate.wait()
        for _ in range(4):
            found.extend(replica.pk for replica in leases.pull(row, 3))
        close_old_connections()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.extend(replica.pk for replica in leases.pull(row, 8))
    assert len(found) == len(set(found)) == 8
    assert Replica.objects.filter(status="running").count() == 8


def test_two_passes_at_once_overbook_nobody(transactional_fleet):
    fleet = transactional_fleet
    for _ in range(3):
        fleet.worker()
    for _ in range(4):
        fleet.job()
    gate = threading.Barrier(3)

    def attend():
        gate.wait()
        run_pass()
        close_old_connections()

    threads = [threading.Thread(target=attend) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_pass()
    assert Unit.objects.count() == 4
    held = list(Replica.objects.filter(status="assigned").values_list("worker", flat=True))
    assert sorted(held) == sorted(RemoteWorker.objects.values_list("pk", flat=True))  # one slot each


def test_progress_renews_and_an_old_lease_is_void(fleet):
    a, b = fleet.worker(), fleet.worker(active=False)
    FleetPolicy.objects.update(replicas=1)
    job = fleet.job()
    run_pass()
    (first,) = a.pull()
    assert a.pull() == []
    job.refresh_from_db()
    assert job.status == "running"
    before = Replica.objects.get().lease_until
    a.progress(first)
    after = Replica.objects.get()
    assert before is not None
    assert after.lease_until is not None
    assert after.lease_until > before
    assert after.progress["log"] == "line\n"
    b.register()
    b.beat()
    with pytest.raises(RefusedRequest, match="409"):
        b.progress(first)  # not the holder
    lapse(after)
    run_pass()
    assert Replica.objects.get().worker == b.row  # the one that lost it comes last
    (second,) = b.pull()
    lapse(Replica.objects.get())
    run_pass()
    replica = Replica.objects.get()
    assert replica.tries == 3
    assert [entry["why"] for entry in replica.lapses] == ["lease", "lease"]
    holder = a if replica.worker == a.row else b
    for late, old in ((a, first), (b, second)):
        with pytest.raises(RefusedRequest) as refused:
            late.report(old)
        assert refused.value.status == 409
    assert replicas() == ["assigned"]
    assert not Replica.objects.get().manifest_sha256
    (third,) = holder.pull()
    holder.report(third)
    job.refresh_from_db()
    assert job.status == "succeeded"


def test_assigned_and_never_pulled_moves_on_and_ends(fleet):
    fleet.worker()
    FleetPolicy.objects.update(replicas=1)
    job = fleet.job()
    for _ in range(3):
        run_pass()
        assert replicas() == ["assigned"]
        lapse(Replica.objects.get(), "deadline")
    run_pass()
    assert replicas() == ["failed"]
    job.refresh_from_db()
    assert (job.status, job.end_reason) == ("failed", "fleet_failed")
    assert job.end_detail.count(": deadline") == 3


def test_a_retired_or_silent_worker_loses_its_replica(fleet):
    a = fleet.worker()
    FleetPolicy.objects.update(replicas=1)
    fleet.job()
    run_pass()
    b = fleet.worker()
    RemoteWorker.objects.filter(pk=a.row.pk).update(heartbeat_at=database_now() - timedelta(seconds=130))
    run_pass()
    assert Replica.objects.get().worker == b.row
    assert Replica.objects.get().lapses[0]["why"] == "worker stale or retired"


def test_degrades_with_a_word_after_the_wait(fleet):
    a = fleet.worker()
    job = fleet.job()
    run_pass()
    (mine,) = a.pull()
    a.report(mine)
    job.refresh_from_db()
    assert job.status == "running"  # the second replica is waited for
    FleetPolicy.objects.update(degrade_after=0)
    run_pass()
    job.refresh_from_db()
    unit = Unit.objects.get()
    assert (job.status, unit.status, unit.degraded) == ("succeeded", "completed", True)
    assert replicas() == ["reported", "dropped"]
    assert JobEvent.objects.filter(job=job, kind="degraded").exists()


def test_cancel_ends_the_unit_and_its_worker_hears_it(fleet):
    a = fleet.worker()
    job = fleet.job()
    run_pass()
    (mine,) = a.pull()
    cancel(job, "ada")
    with pytest.raises(RefusedRequest, match="409"):
        a.progress(mine)
    run_pass()
    job.refresh_from_db()
    assert (job.status, Unit.objects.get().status, replicas()) == (
        "cancelled",
        "cancelled",
        ["dropped", "dropped"],
    )
    assert Account.objects.filter(name="fleet audits").count() == 0


def test_one_bad_unit_does_not_stop_the_pass(fleet, monkeypatch):
    fleet.job()
    fleet.job()
    run_pass()
    fleet.worker()
    bad = Unit.objects.order_by("pk")[0]
    real = assignment.assign

    def assign(unit, policy, now):
        if unit.pk == bad.pk:
            raise RuntimeError("a bad row")
        real(unit, policy, now)

    monkeypatch.setattr(assignment, "assign", assign)
    run_pass()
    assert Replica.objects.filter(status="assigned").exclude(unit=bad).count() == 1


def test_a_function_job_is_not_for_the_fleet(fleet):
    with pytest.raises(NotAdmitted, match="no functions"):
        admit(user=fleet.user, spec=read_spec({"environment": "fleet/gpu", "function": function("x = 1")}))
    assert not Unit.objects.exists()


def test_an_account_at_its_cap_waits_and_hides_nobody(fleet, settings, monkeypatch):
    """The cap counts all that the account runs, here and on the fleet, as on engines of our own."""
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 2
    monkeypatch.setattr(assignment, "BATCH", 2)
    local = submit(fleet.user)
    take(local)
    first, second, third = (fleet.job() for _ in range(3))
    bob = make_user("bob")
    make_account("bob's", bob)
    other = submit(bob, environment="fleet/gpu")
    assert assignment.make_units() == 1  # two of the batch, and the account may run one more
    assert assignment.make_units() == 1  # of the other account, behind them
    assert set(Unit.objects.values_list("attempt__job", flat=True)) == {first.pk, other.pk}
    assert assignment.make_units() == 0
    second.refresh_from_db()
    third.refresh_from_db()
    assert (second.status, second.attempts_made, third.status) == ("queued", 0, "queued")
    assert pending_reason(second) == "2 of at most 2 jobs of the account run"
    settings.MAX_RUNNING_JOBS_PER_ACCOUNT = 3
    assert assignment.make_units() == 1
