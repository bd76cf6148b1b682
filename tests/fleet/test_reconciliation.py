"""Results: what counts, what never does, and that everything happens once."""

import base64
import hashlib
import json
import threading

import pytest
from django.db import close_old_connections

from jobs.models import Artifact, Attempt, Job, LogChunk
from jobs.outcome import Outcome, StoredFile
from jobs.results import build_manifest, read_content
from jobs.settlement import settle
from jobs.spec import Spec
from tests.factories import take
from workers import fsck, job_file
from workers.fleet import reconciliation
from workers.fleet.client import RefusedRequest
from workers.fleet.manifest import LOG_BYTES
from workers.fleet.models import Audit, Fault, FleetPolicy, RemoteWorker, Replica, Unit
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


def test_the_log_of_the_accepted_replica_is_the_jobs(fleet, client):
    job, ((a, one), (b, two)) = started(fleet)
    log = {"stdout": {"data": "Zmlyc3QKAP8=", "cut": 7}, "stderr": {"data": "b29wcw==", "cut": 0}}
    a.report(one, log=log)
    client.force_login(fleet.user)
    assert client.get(f"/api/v1/jobs/{job.public_id}/logs").content == b""
    b.report(two)
    answer = client.get(f"/api/v1/jobs/{job.public_id}/logs")
    assert (answer.content, answer["X-Log-Bytes-Cut"]) == (b"first\n\0\xff", "7")
    assert answer["X-Log-Complete"] == "true"
    assert client.get(f"/api/v1/jobs/{job.public_id}/logs?stream=stderr").content == b"oops"
    kept = Replica.objects.order_by("number").values_list("progress", flat=True)
    assert list(kept) == [{"note": "", "log": "first\n\ufffd"}, {"note": "", "log": "line"}]


def test_a_disputed_unit_gives_its_job_no_log(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    a.report(one)
    b.report(two, text=b"43")
    assert fresh(job).end_reason == "fleet_disputed"
    assert not LogChunk.objects.exists()
    assert not Replica.objects.filter(progress__has_key="streams").exists()


def test_every_run_of_a_unit_finds_the_same_job_json(fleet):
    """Else the worker of a program that reads it would be found wrong by the audit, honest as it is."""
    workers = [fleet.worker() for _ in range(2)]
    job = fleet.job(outputs=["answer.txt"], inputs=[{"name": "a", "text": "é"}])
    run_pass()
    pairs = [(worker, worker.pull()[0]) for worker in workers]
    found, other = (json.loads(each["work"]["job_json"]) for _, each in pairs)
    unit = Unit.objects.get()
    assert found == other
    assert (found["version"], found["job"], found["attempt"]) == (1, str(unit.public_id), 1)
    assert found["inputs"][0].keys() == {"name", "size", "sha256"}
    for number, (worker, assignment) in enumerate(pairs):
        worker.report(assignment, text=b"%d" % number)
    audit = Audit.objects.get().job
    for attempt in (1, 2):  # an audit may be tried again
        assert json.loads(job_file.document(audit, attempt, Spec.from_json(audit.spec))) == found
    assert str(job.public_id) not in json.dumps(found)


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
    audit.refresh_from_db()
    judged = audit.finished_at
    run_pass()
    audit.refresh_from_db()
    assert (audit.status, audit.finished_at) == ("mismatch_resolved", judged)  # once
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
        ({"log": {"stdout": {"data": "no base64", "cut": 0}}}, 400),
        ({"log": {"stdout": {"data": base64.b64encode(bytes(LOG_BYTES + 1)).decode(), "cut": 0}}}, 400),
        ({"log": {"stdout": {"data": "", "cut": -1}}}, 400),
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


def test_a_unit_is_no_disagreement_while_it_runs_nor_afterwards(fleet):
    _, ((a, one), (b, two)) = started(fleet)
    assert list(fsck.row_disagreements()) == []
    a.report(one)
    b.report(two)
    assert list(fsck.row_disagreements()) == []
    assert Attempt.objects.get().cleaned_at is not None  # nothing of it was on an engine of ours


def test_a_failed_replica_alone_never_disputes(fleet):
    FleetPolicy.objects.update(max_attempts=1)
    job, ((a, one), (b, two)) = started(fleet)
    assert a.fail(one)["status"] == "failed"
    assert a.fail(one)["status"] == "failed"
    assert fresh(job).status == "running"
    b.report(two)
    unit = Unit.objects.get()
    assert (fresh(job).status, unit.status, unit.degraded) == ("succeeded", "completed", True)
    assert not Audit.objects.exists()


def test_a_failure_is_a_try_and_another_owner_comes_to_the_result(fleet):
    job, ((a, one), (b, two)) = started(fleet)
    c = fleet.worker()
    assert a.fail(one)["status"] == "failed"
    waiting = Replica.objects.get(public_id=one["id"])
    assert (waiting.status, waiting.worker, waiting.owner, waiting.tries) == ("waiting", None, None, 1)
    assert waiting.lapses == [{"worker": a.id, "token": one["token"], "why": "cannot_start: no disk"}]
    b.report(two)
    assert fresh(job).status == "running"  # it is waited for
    run_pass()
    assert Replica.objects.get(public_id=one["id"]).worker == c.row
    before = Replica.objects.filter(public_id=one["id"]).values().get()
    assert a.fail(one)["status"] == "failed"  # a lost answer: the same word once more
    for late in (
        lambda: a.report(one),
        lambda: a.progress(one),
        lambda: a.fail(one | {"token": two["token"]}),
    ):
        with pytest.raises(RefusedRequest) as refused:
            late()
        assert refused.value.status == 409
    assert Replica.objects.filter(public_id=one["id"]).values().get() == before
    c.report(c.pull()[0])
    unit = Unit.objects.get()
    assert (fresh(job).status, unit.status, unit.degraded) == ("succeeded", "completed", False)
    assert not Audit.objects.exists()
    told = {row["worker"]: row for row in a.client.call("GET", "/workers/units")[0]["replicas"]}
    assert told[c.id]["lapses"] == [{"worker": a.id, "why": "cannot_start: no disk"}]


def test_who_failed_a_unit_gets_it_again_only_when_nobody_else_is_there(fleet):
    FleetPolicy.objects.update(replicas=1)
    job, ((a, one),) = started(fleet, 1)
    busy = fleet.worker()
    fleet.job()
    run_pass()
    (other,) = busy.pull()
    a.fail(one)
    run_pass()
    assert Replica.objects.get(public_id=one["id"]).status == "waiting"  # the other one is busy, but there
    busy.report(other)
    run_pass()
    assert Replica.objects.get(public_id=one["id"]).worker == busy.row
    busy.fail(busy.pull()[0])
    run_pass()
    assert Replica.objects.get(public_id=one["id"]).worker == a.row  # both have failed it: the longest idle
    a.report(a.pull()[0])
    assert fresh(job).status == "succeeded"


def test_nobody_who_has_part_in_a_unit_is_given_what_another_failed(fleet):
    _, ((a, one), (b, two)) = started(fleet)
    c = fleet.worker(owner=b)
    b.report(two)
    a.fail(one)
    run_pass()
    assert Replica.objects.get(public_id=one["id"]).worker == a.row  # neither b, who is done, nor b's owner
    RemoteWorker.objects.filter(pk=a.row.pk).update(status="stale")
    run_pass()
    assert Replica.objects.get(public_id=one["id"]).status == "waiting"
    assert c.pull() == b.pull() == []


def test_the_programs_own_fault_is_no_reason_to_try_again(fleet):
    _, ((a, one), (b, two)) = started(fleet)
    a.fail(one, reason="time_limit")
    assert Replica.objects.get(public_id=one["id"]).status == "failed"
    b.fail(two, reason="image_not_found")  # by its word: another may have access to it
    assert Replica.objects.get(public_id=two["id"]).status == "waiting"


def test_too_few_results_fail_where_the_policy_says_so(fleet):
    policy = fleet.policy
    policy.accept_degraded = False
    policy.save()
    job, ((a, one), (b, two)) = started(fleet)
    policy.max_attempts = 1
    policy.save()
    a.fail(one)
    b.report(two)
    assert (fresh(job).end_reason, Unit.objects.get().status) == ("fleet_failed", "failed")


def test_all_failed_is_failed_with_the_causes(fleet):
    FleetPolicy.objects.update(max_attempts=2)
    job, ((a, one), (b, two)) = started(fleet)
    a.fail(one)
    b.fail(two, detail="no engine")
    run_pass()  # nobody else is there
    (one,), (two,) = a.pull(), b.pull()
    a.fail(one, detail="no memory")
    assert fresh(job).status == "running"
    b.fail(two, detail="no launcher")
    job = fresh(job)
    assert (job.status, job.end_reason, Unit.objects.get().status) == ("failed", "fleet_failed", "failed")
    for cause in ("no disk", "no engine", "no memory", "no launcher"):
        assert f"cannot_start: {cause}" in job.end_detail
    assert set(Replica.objects.values_list("status", "tries")) == {("failed", 2)}
    assert not Audit.objects.exists()
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
