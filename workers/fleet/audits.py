"""A disputed unit is run again on a trusted engine, as an ordinary job of the site's own; its result names the wrong ones."""

from datetime import timedelta
from typing import Any

from django.db import transaction

from compute_site.core.db import database_now, lock
from environments.models import Environment, Resource, Tier
from jobs.billing.models import Account
from jobs.dispatch import knock_on_commit
from jobs.models import Job, JobStatus
from jobs.transitions import record_event
from workers.fleet import manifest
from workers.fleet.models import Audit, AuditStatus, Fault, FleetPolicy, ReplicaStatus, Unit
from workers.fleet.transitions import move_audit

ACCOUNT = "fleet audits"  # without members: nobody sees these jobs but the operator, nobody pays for them
LONGEST_WAIT = timedelta(hours=24)
SHOWN_ATTEMPT = 1  # in job.json, of replicas and audit, however often one of them is tried
OWN_RESULT = ("succeeded", "exit_nonzero", "output_missing")


def order(unit: Unit) -> Audit:
    """Queue the audit of a unit that has just become disputed, in the same transaction; once for each unit."""
    job = unit.attempt.job
    policy = FleetPolicy.objects.select_related("audit_environment__engine").get(
        environment=unit.environment_id
    )
    environment = policy.audit_environment
    account, _ = Account.objects.get_or_create(name=ACCOUNT)
    audit_job = Job.objects.create(
        public_id=unit.public_id,  # as the replicas have it: a program may put its job's id into what it writes
        account=account,
        environment=environment,
        tier=Tier.PAID,
        spec={**job.spec, "environment": str(environment), "tier": Tier.PAID.value, "account": None},
        spec_version=job.spec_version,
        terms=_terms(job, environment),
        terms_version=job.terms_version,
        labels={"audit": str(unit.public_id)},
        max_duration=job.max_duration,
        max_attempts=job.max_attempts,
        queue_expires_at=database_now() + LONGEST_WAIT,
    )
    record_event(audit_job.pk, JobStatus.QUEUED, f"audit of unit {unit.public_id}")
    knock_on_commit(environment.engine)
    return Audit.objects.create(unit=unit, job=audit_job)


def _terms(job: Job, environment: Environment) -> dict[str, Any]:
    """The job's own terms without prices, its amounts by the names that the audit's environment has for them.

    However often the audit is tried, its program is told the attempt that the replicas were told.
    """
    slugs = {row.kind: row.slug for row in Resource.objects.filter(environment=environment)}
    amounts = {slugs[kind]: amount for kind, amount in job.amounts.items() if amount and kind in slugs}
    return {
        **job.terms,
        "resources": amounts,
        "kinds": {slug: kind for kind, slug in slugs.items() if slug in amounts},
        "tier": Tier.PAID.value,
        "currency": "",
        "prices": {},
        "shown_attempt": SHOWN_ATTEMPT,
    }


def judge_audits() -> int:
    """Give every audit whose job has ended its outcome, and each divergent worker its fault; returns how many."""
    ended = Audit.objects.filter(status=AuditStatus.PENDING, job__finished_at__isnull=False)
    return sum(_judge(pk) for pk in list(ended.values_list("pk", flat=True)))


def _judge(audit_id: int) -> bool:
    with transaction.atomic():
        rows = lock(Audit.objects.filter(pk=audit_id, status=AuditStatus.PENDING), skip_locked=True)
        if not rows:
            return False
        audit = rows[0]
        expected = _expected(audit.job)
        if not expected:
            return move_audit(audit.pk, AuditStatus.FAILED)
        reported = audit.unit.replicas.filter(status=ReplicaStatus.REPORTED).exclude(worker=None)
        wrong = [replica for replica in reported if replica.manifest_sha256 != expected]
        for replica in wrong:
            values = {"found": replica.manifest_sha256, "expected": expected}
            Fault.objects.get_or_create(unit=audit.unit, worker=replica.worker, defaults=values)
        outcome = AuditStatus.RESOLVED if wrong else AuditStatus.PASSED
        return move_audit(audit.pk, outcome, manifest_sha256=expected)


def _expected(job: Job) -> str:
    """The hash that an honest replica comes to; empty when the audit has no result of the program's own."""
    found: Any = job.manifest
    if found is None or job.end_reason not in OWN_RESULT or found["exit_code"] is None:
        return ""
    files = [(file["path"], file["size"], file["sha256"]) for file in found["files"]]
    return manifest.build(found["exit_code"], files)[1]
