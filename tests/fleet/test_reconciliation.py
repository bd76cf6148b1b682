"""Results: what counts, what never does, and that everything happens once."""

import hashlib
import threading

import pytest
from django.db import close_old_connections

from jobs.models import Artifact, Attempt, Job
from jobs.outcome import Outcome, StoredFile
from jobs.results import build_manifest, read_content
from jobs.settlement import settle
from tests.factories import take
from workers.fleet import reconciliation
from workers.fleet.client import RefusedRequest
from workers.fleet.models import Audit, Fault, Replica, Unit
from workers.fleet.passes import run_pass
from workers.fleet.reconciliation import reconcile

pytestmark = pytest.mark.django_db


def started(fleet, count=2):
    """A unit that `count` workers run."""
    workers = [fleet.worker() for _ in range(count)]
    job = fleet.job(outputs=["answer.txt"])
    run_pass()
    return job, [(worker, worker.pull()[0]) for worker in workers]


def fresh(job):
    job.refresh_from_db()
    return job


def test_equal_results_settle_the_job_once(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    assert a.report(one)["status"] == "reported"
    assert fresh(job).status == "running"
    assert b.report(two)["status"] == "reported"
    job = fresh(job)
    assert (job.status, job.end_reason, job.exit_code) == ("succeeded", "succeeded", 0)
    assert Unit.objects.get().status == "completed"
    assert Attempt.objects.get().status == "settled"
    artifact = Artifact.objects.get()
    assert (artifact.path, read_content(artifact.sha256)) == ("answer.txt", b"42")
    assert a.report(one)["status"] == "reported"  # a lost answer: the same again changes nothing
    assert Artifact.objects.count() == 1
    with pytest.raises(RefusedRequest) as refused:
        a.report(one, text=b"43")
    assert refused.value.status == 409
    run_pass()
    assert not Audit.objects.exists()


@pytest.mark.parametrize("texts", [(b"42", b"42"), (b"42", b"43")])
def test_two_reports_at_once_are_judged_once(transactional_fleet, texts):
    job, pairs = started(transactional_fleet)
    gate = threading.Barrier(2)

    def send(worker, assignment, text):
        gate.wait()
        worker.report(assignment, text=text)
        close_old_connections()

    threads = [
        threading.Thread(target=send, args=(*pair, text)) for pair, text in zip(pairs, texts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    job, equal = fresh(job), texts[0] == texts[1]
    assert job.end_reason == ("succeeded" if equal else "fleet_disputed")
    assert Attempt.objects.filter(job=job).count() == 1
    assert Audit.objects.count() == (0 if equal else 1)
    assert job.events.filter(kind=job.status).count() == 1


def audit_ends(text: bytes, exit_code: int = 0):
    """The trusted engine comes to this result."""
    job = Audit.objects.get().job
    attempt = take(job, "created", "starting", "running", "collecting")
    sha256 = hashlib.sha256(text).hexdigest()
    found, digest = build_manifest(exit_code, [StoredFile("answer.txt", len(text), sha256)])
    outcome = Outcome("succeeded", exit_code=exit_code, manifest=found, manifest_sha256=digest)
    assert settle(attempt, attempt.lease, outcome)


def test_different_results_are_disputed_audited_and_found_out(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    a.report(one, text=b"42")
    b.report(two, text=b"43")
    job = fresh(job)
    assert (job.status, job.end_reason, job.manifest) == ("failed", "fleet_disputed", None)
    assert not Artifact.objects.exists()  # none of them is forwarded
    audit = Audit.objects.get()
    assert (audit.status, audit.job.status, str(audit.job.environment)) == ("pending", "queued", "local/main")
    assert audit.job.account.memberships.count() == 0
    run_pass()
    assert Audit.objects.count() == 1
    audit_ends(b"42")
    run_pass()
    run_pass()
    audit.refresh_from_db()
    assert audit.status == "mismatch_resolved"
    fault = Fault.objects.get()
    assert fault.worker == b.row
    assert fault.expected == Replica.objects.get(worker=a.row).manifest_sha256
    assert Unit.objects.get().status == "disputed"  # it stays visible
    assert fresh(job).end_reason == "fleet_disputed"
    (told,) = a.client.call("GET", "/workers/units")
    assert (told["audit"]["outcome"], told["faults"]) == ("mismatch_resolved", [b.id])
    faults = {row["id"]: row["faults"] for row in a.client.call("GET", "/workers")}
    assert faults == {a.id: 0, b.id: 1}


def test_an_audit_without_a_result_blames_nobody(fleet):
    _, ((a, one), (b, two)) = started(fleet)
    a.report(one, text=b"42")
    b.report(two, text=b"43")
    Job.objects.filter(pk=Audit.objects.get().job_id).update(
        status="expired", end_reason="expired_in_queue", finished_at="2026-01-01T00:00:00Z"
    )
    run_pass()
    assert Audit.objects.get().status == "failed"
    assert not Fault.objects.exists()


def test_what_has_no_valid_proof_never_counts(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    good = a.result(one, b"42")
    stranger = b.result(one, b"42")["proof"]
    other_unit = a.result(one | {"unit": two["id"]}, b"42")["proof"]
    other_result = a.result(one, b"43")
    file = good["manifest"]["files"][0]
    for changes, status in [
        ({"proof": stranger}, 403),
        ({"proof": other_unit}, 403),
        ({"proof": other_result["proof"]}, 403),
        ({"proof": good["proof"] | {"expires": 1}}, 403),
        ({"proof": None}, 400),
        ({"manifest": None}, 400),
        ({"manifest": "a" * 64}, 400),
        ({"manifest": good["manifest"] | {"more": 1}}, 400),
        ({"manifest": good["manifest"] | {"files": [file, file]}}, 400),
        ({"manifest": good["manifest"] | {"files": [file | {"path": "../answer.txt"}]}}, 400),
        ({"manifest": good["manifest"] | {"files": [file | {"size": -1}]}}, 400),
        ({"manifest": good["manifest"] | {"exit_code": None}}, 400),
        ({"contents": {}}, 400),
        ({"contents": other_result["contents"]}, 400),
        ({"contents": {file["sha256"]: "NDM="}}, 400),
    ]:
        with pytest.raises(RefusedRequest) as refused:
            a.report(one, **changes)
        assert refused.value.status == status, changes
    with pytest.raises(RefusedRequest) as refused:
        b.report(one)  # not the holder
    assert refused.value.status == 409
    assert set(Replica.objects.values_list("status", flat=True)) == {"running"}
    assert fresh(job).status == "running"
    a.report(one)


def test_one_failed_replica_disputes_nothing(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    assert a.fail(one)["status"] == "failed"
    assert a.fail(one)["status"] == "failed"
    assert fresh(job).status == "running"
    b.report(two)
    unit = Unit.objects.get()
    assert (fresh(job).status, unit.status, unit.degraded) == ("succeeded", "completed", True)
    assert not Audit.objects.exists()


def test_too_few_results_fail_where_the_policy_says_so(fleet):
    policy = fleet.policy
    policy.accept_degraded = False
    policy.save()
    job, ((a, one), (b, two)) = started(fleet)
    a.fail(one)
    b.report(two)
    assert (fresh(job).end_reason, Unit.objects.get().status) == ("fleet_failed", "failed")


def test_all_failed_is_failed_with_the_causes(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    a.fail(one)
    b.fail(two)
    job = fresh(job)
    assert (job.status, job.end_reason) == ("failed", "fleet_failed")
    assert job.end_detail == "cannot_start: no disk; cannot_start: no disk"
    with pytest.raises(RefusedRequest, match="409"):
        a.report(one)  # late, on a unit that has ended


def test_how_it_ended_is_judged_by_what_they_agree_on(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    a.report(one, exit_code=3)
    b.report(two, exit_code=3)
    assert (fresh(job).end_reason, job.exit_code) == ("exit_nonzero", 3)


def test_nothing_is_judged_when_settling_fails(fleet, monkeypatch):
    job, ((a, one), (b, two)) = started(fleet)
    a.report(one)

    def broken(*args):
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(reconciliation, "settle", broken)
        with pytest.raises(RuntimeError):
            b.report(two)
    assert Unit.objects.get().status == "assigned"  # the result itself is kept
    assert set(Replica.objects.values_list("status", flat=True)) == {"reported"}
    assert reconcile(Unit.objects.get().pk) == "completed"
    assert fresh(job).status == "succeeded"
