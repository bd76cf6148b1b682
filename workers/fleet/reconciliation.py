"""Results come in; when all are equal one of them is the job's, once; when two differ none is, and an audit decides."""

import base64
import binascii
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from compute_site.core.db import ClockTimestamp, database_now, lock
from compute_site.core.errors import StaleToken
from compute_site.core.paths import without_any
from jobs import results
from jobs.end_reasons import END_REASONS
from jobs.models import Attempt, Job
from jobs.outcome import Outcome, StoredFile
from jobs.result_json import InvalidResult, parse_result
from jobs.settlement import record_exit, settle
from jobs.spec import Spec
from workers.fleet import audits, logs, manifest, signing
from workers.fleet.assignment import drop_open
from workers.fleet.leases import give_back, held, told
from workers.fleet.models import FleetPolicy, RemoteWorker, Replica, ReplicaStatus, Unit, UnitStatus
from workers.fleet.models.unit import HELD, REPLICA_OPEN, UNIT_OPEN
from workers.fleet.requests import NotEntitled
from workers.fleet.transitions import move_replica, move_unit

RESULT = "result.json"


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's result, checked in itself: manifest, its hash, the proof, every file's content, and its log."""

    manifest: Mapping[str, Any]
    sha256: str
    signature: str
    expires: int
    contents: Mapping[str, bytes]
    run_seconds: float | None
    progress: Mapping[str, Any]


def read_report(worker: RemoteWorker, replica: Replica, data: Mapping[str, Any], *, now: float) -> Report:
    """The result in a request. Raises ValidationError (malformed), NotEntitled (no valid proof); writes nothing."""
    try:
        digest = manifest.check(data["manifest"])
    except manifest.BadManifest as error:
        raise ValidationError({"manifest": str(error)}) from error
    signature, expires = data["proof"]["signature"], data["proof"]["expires"]
    message = signing.proof_message(settings.SITE_ID, digest, str(replica.unit.public_id), expires)
    if expires <= now or not signing.is_signed(worker.key, message, signature):
        raise NotEntitled("The proof is not this worker's signature under this result.", code="proof_invalid")
    contents = _contents(data["manifest"], data["contents"])
    progress = logs.read_streams(data["log"])
    return Report(data["manifest"], digest, signature, expires, contents, data.get("run_seconds"), progress)


def _contents(found: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, bytes]:
    """Every content that the manifest names, by its sha256, each of them what it says."""
    contents = {}
    for file in found["files"]:
        try:
            data = base64.b64decode(given[file["sha256"]], validate=True)
        except (KeyError, binascii.Error) as error:
            raise ValidationError({"contents": f"{file['path']} has no content here."}) from error
        if len(data) != file["size"] or hashlib.sha256(data).hexdigest() != file["sha256"]:
            raise ValidationError({"contents": f"{file['path']} is not what the manifest says."})
        contents[file["sha256"]] = data
    return contents


def store(report: Report) -> None:
    """Store the contents, outside of any transaction; what no job comes to refer to is swept later."""
    for sha256, data in report.contents.items():
        results.store_output(io.BytesIO(data), sha256, len(data))


def accept(worker: RemoteWorker, public_id: UUID, token: UUID, report: Report) -> Replica:
    """running → reported. The same result again is the same answer; anything else raises StaleToken.

    Raises ObjectDoesNotExist too. The contents were stored before. `reconcile` follows, in its own transaction.
    """
    with transaction.atomic():
        replica = held(worker, public_id, token)
        if replica.status == ReplicaStatus.REPORTED and replica.manifest_sha256 == report.sha256:
            return replica
        fields = {
            "manifest": dict(report.manifest),
            "manifest_sha256": report.sha256,
            "proof": {"signature": report.signature, "expires": report.expires, "tier": 0},
            "result": _result(report),
            "run_seconds": report.run_seconds,
            "progress": dict(report.progress),
        }
        if not move_replica(replica, ReplicaStatus.REPORTED, **fields):
            raise StaleToken(f"this replica is {replica.status} already")
    return replica


def _result(report: Report) -> Any:
    """The value of result.json, None when there is none or it is no acceptable one."""
    for file in report.manifest["files"]:
        if file["path"] == RESULT:
            try:
                return parse_result(report.contents[file["sha256"]])
            except InvalidResult:
                return None
    return None


def accept_failure(worker: RemoteWorker, public_id: UUID, token: UUID, reason: str, detail: str) -> Replica:
    """running → waiting for another worker, failed when no try is left: this one came to no result.

    Failed at once where the program itself is to blame (`END_REASONS`): others would come to the same. The same word
    again changes nothing and is the same answer; anything else raises as `accept`.
    """
    why = f"{reason}: {detail}"[:4000]
    with transaction.atomic():
        rows = lock(Replica.objects.filter(public_id=public_id))
        said = {"worker": str(worker.public_id), "token": str(token), "why": why}
        if rows and said in rows[0].lapses:
            return rows[0]
        replica = held(worker, public_id, token)
        if replica.status not in HELD:
            raise StaleToken(f"this replica is {replica.status} already")
        policy = FleetPolicy.objects.get(environment=replica.unit.environment_id)
        give_back(replica, why, policy, is_final=reason in END_REASONS and END_REASONS[reason].blame == "job")
    return replica


def reconcile(unit_id: int, *, wait: bool = True) -> str:
    """Judge an open unit by what is in; returns its status. One caller at a time: the unit's row is the lock.

    Equal and all in → completed, the job settled, in the same transaction. Two different → disputed, the job failed
    and an audit made, once. Nothing in and nobody at work, or too few → failed. Else it stays as it is.
    """
    with transaction.atomic():
        rows = lock(Unit.objects.filter(pk=unit_id), skip_locked=not wait)
        if not rows or rows[0].status not in UNIT_OPEN:
            return rows[0].status if rows else ""
        return _judge(rows[0])


def _judge(unit: Unit) -> str:
    replicas = list(unit.replicas.defer("progress").order_by("number"))  # whole logs: one is read
    reported = [replica for replica in replicas if replica.status == ReplicaStatus.REPORTED]
    job = Job.objects.get(pk=unit.attempt.job_id)
    if job.is_final or job.cancel_requested_at is not None:
        return _end(unit, UnitStatus.CANCELLED, Outcome(reason=job.cancel_reason or "cancelled"))
    if len({replica.manifest_sha256 for replica in reported}) > 1:
        done = _end(unit, UnitStatus.DISPUTED, Outcome(reason="fleet_disputed", detail=_told(reported)))
        audits.order(unit)
        return done
    if any(replica.status in REPLICA_OPEN for replica in replicas):
        return unit.status
    if not reported:
        causes = "; ".join(told(replica.lapses) for replica in replicas if replica.lapses)
        return _end(unit, UnitStatus.FAILED, Outcome(reason="fleet_failed", detail=causes))
    policy = FleetPolicy.objects.get(environment=unit.environment_id)
    if len(reported) < unit.wanted and not policy.accept_degraded:
        detail = f"{len(reported)} of {unit.wanted} results came in"
        return _end(unit, UnitStatus.FAILED, Outcome(reason="fleet_failed", detail=detail))
    sha256, degraded = reported[0].manifest_sha256, len(reported) < unit.wanted
    return _end(
        unit,
        UnitStatus.COMPLETED,
        _outcome(job, reported),
        accepted=reported[0],
        manifest_sha256=sha256,
        degraded=degraded,
    )


def _end(unit: Unit, to: str, outcome: Outcome, *, accepted: Replica | None = None, **fields: Any) -> str:
    """The unit's end and its job's, in one transaction; `accepted`: whose log becomes the job's."""
    drop_open(unit)
    if not move_unit(unit.pk, to, waits_for="", **fields):
        raise StaleToken(f"a unit that is {unit.status} cannot become {to}")
    attempt = Attempt.objects.get(pk=unit.attempt_id)
    facts = {"unit": str(unit.public_id), "marker": logs.cut_bytes(accepted) if accepted else {}}
    record_exit(attempt, facts=facts, exit_code=outcome.exit_code, exited_at=database_now())
    logs.hand_over(unit, attempt, accepted)
    settle(attempt, None, outcome)
    Attempt.objects.filter(pk=attempt.pk).update(cleaned_at=ClockTimestamp())  # it was on no engine of ours
    return to


def _outcome(job: Job, reported: list[Replica]) -> Outcome:
    """What all replicas agree on, as the job's outcome. How it ended is judged here, by what they agree on."""
    found: Any = reported[0].manifest
    files = [StoredFile(row["path"], row["size"], row["sha256"]) for row in found["files"]]
    made, digest = results.build_manifest(found["exit_code"], files)
    reason, detail = _reason(Spec.from_json(job.spec), found["exit_code"], files)
    spans = [replica.run_seconds for replica in reported if replica.run_seconds is not None]
    return Outcome(
        reason=reason,
        detail=detail,
        exit_code=found["exit_code"],
        run_seconds=min(spans, default=None),  # the least that any of them claims
        result=reported[0].result,
        manifest=made,
        manifest_sha256=digest,
        artifacts=files,
    )


def _reason(spec: Spec, exit_code: int, files: list[StoredFile]) -> tuple[str, str]:
    if exit_code != 0:
        return "exit_nonzero", f"exit code {exit_code}"
    missing = without_any(spec.declared or (), (file.path for file in files))
    return ("output_missing", ", ".join(missing)[:1000]) if missing else ("succeeded", "")


def _told(reported: list[Replica]) -> str:
    return "; ".join(f"replica {replica.number}: {replica.manifest_sha256}" for replica in reported)
