"""Step 1: a well-formed job is admitted, with its terms, or refused with nothing written."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction

from compute_site.core.errors import IdempotencyConflict, NotAdmitted, QuotaExceeded
from environments.access import has_rules, may_use
from environments.models import EngineKind, EngineState, Environment, EnvironmentState, FreeTier, Tier
from environments.reservations import fill
from jobs.admission_reads import lock_account, queue_and_key, read_offer
from jobs.billing.holds import place
from jobs.billing.models import Account, Membership
from jobs.dispatch import knock_on_commit
from jobs.models import IdempotencyKey, Job, JobStatus
from jobs.spec import SPEC_VERSION, Spec
from jobs.transitions import record_event

MAX_ATTEMPTS = 3
TERMS_VERSION = 1


def admit(
    *, user: AbstractBaseUser, account: Account | None = None, spec: Spec, idempotency_key: str = ""
) -> tuple[Job, bool]:
    """Queue a job for `account` (else the one that `spec` names, else the user's only one), all in one transaction.

    Returns the job and whether it is the answer to an earlier request with the same key and body. Raises
    ValidationError (a field is wrong), NotAdmitted, QuotaExceeded, InsufficientFunds or IdempotencyConflict: then
    nothing was written.
    """
    body = spec.as_json()
    digest = hashlib.sha256(canonical(body)).hexdigest()
    with transaction.atomic():
        wanted = account.public_id if account is not None else spec.account
        account = lock_account(user.pk, wanted)
        if account is None:
            raise _no_account(user, wanted)
        queued, earlier, earlier_digest = queue_and_key(account, idempotency_key)
        if earlier is not None:
            return _replay(earlier, earlier_digest, digest), True
        _check_account(account, queued)
        job = _queue(user, account, spec, body)
        place(job)
        if idempotency_key:
            IdempotencyKey.objects.create(account=account, key=idempotency_key, body_sha256=digest, job=job)
        knock_on_commit(job.environment.engine)
    return job, False


def _queue(user: AbstractBaseUser, account: Account, spec: Spec, body: dict[str, Any]) -> Job:
    """The job's row and its first event; whatever refuses it raises before anything is written."""
    now = account.now  # type: ignore[attr-defined]  # read with the lock
    environment, restricted = _find_environment(spec.environment, spec.tier)
    if restricted and not may_use(environment, spec.tier, user):
        text = f"The {spec.tier} tier of this environment is not open to you."
        raise NotAdmitted(text, field="environment", code="no_access")
    if spec.function is not None and environment.engine.kind == EngineKind.FLEET:
        text = "Remote workers run containers only, no functions yet."
        raise NotAdmitted(text, field="function", code="fleet_no_functions")
    job = Job(
        account=account,
        submitted_by_id=user.pk,
        environment=environment,
        tier=spec.tier,
        spec=body,
        spec_version=SPEC_VERSION,
        terms_version=TERMS_VERSION,
        labels=dict(spec.labels),
        max_attempts=MAX_ATTEMPTS,
        created_at=now,
        **_terms(environment, spec, now),
    )
    job.save(force_insert=True)
    record_event(job.pk, JobStatus.QUEUED)
    return job


def canonical(data: Any) -> bytes:
    """One spelling of JSON data: sorted keys, no spaces, UTF-8."""
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _no_account(user: AbstractBaseUser, wanted: UUID | None) -> ValidationError:
    if wanted:
        message, code = "You are a member of no such account.", "unknown"
    elif Membership.objects.filter(user=user.pk).exists():
        message, code = (
            "You are a member of several accounts: name the one that the job belongs to.",
            "required",
        )
    else:
        message, code = "You are a member of no account.", "unknown"
    return ValidationError({"account": ValidationError(message, code=code)})


def _replay(job_id: int, earlier_digest: str | None, digest: str) -> Job:
    if earlier_digest != digest:
        raise IdempotencyConflict("This Idempotency-Key was used before with another body.")
    return Job.objects.select_related("account", "environment__engine").get(pk=job_id)


def _check_account(account: Account, queued: int) -> None:
    if account.closed_at is not None:
        raise NotAdmitted("This account is closed.", field="account", code="account_closed")
    limit = settings.MAX_QUEUED_JOBS_PER_ACCOUNT
    if queued >= limit:
        raise QuotaExceeded(f"The account already has {limit} queued jobs, the most it may have.")


def _find_environment(name: str, tier: str) -> tuple[Environment, bool]:
    """The environment, and whether this tier has access rules."""
    engine, slash, slug = name.partition("/")
    rows = Environment.objects.select_related("engine__host", "free_tier")
    rows = rows.annotate(restricted=has_rules(tier))
    rows = rows.filter(engine__name=engine, slug=slug) if slash else rows.filter(public_id=engine)
    environment = rows.first()
    if environment is None or environment.state == EnvironmentState.RETIRED:
        raise ValidationError(
            {"environment": ValidationError("There is no such environment.", code="unknown")}
        )
    if environment.state != EnvironmentState.ACTIVE:
        raise NotAdmitted(
            "This environment is draining: it takes no new jobs.", field="environment", code="draining"
        )
    if environment.engine.state != EngineState.ACTIVE:
        text = f"The engine of this environment is {environment.engine.state}: it takes no new jobs."
        raise NotAdmitted(text, field="environment", code="engine_not_active")
    host = environment.engine.host  # none: the fleet
    if host is not None and host.declared_gone_at is not None:
        text = "The machine of this environment is gone: it takes no new jobs."
        raise NotAdmitted(text, field="environment", code="host_gone")
    return environment, environment.restricted


def _terms(environment: Environment, spec: Spec, now: datetime) -> dict[str, Any]:
    """The fields of the job that say what was agreed: they never change, whatever becomes of the environment."""
    limits = _limits(environment, spec.tier)
    longest = limits.max_job_duration
    if spec.max_duration is not None and spec.max_duration > longest:
        text = f"At most {longest} seconds in this environment and tier; asked: {spec.max_duration}."
        raise ValidationError({"max_duration": ValidationError(text, code="too_long")})
    waits = [wait for wait in (spec.max_queue_wait, environment.max_queue_wait) if wait is not None]
    paid = spec.tier == Tier.PAID
    kinds, currency, prices = read_offer(environment.pk)
    if paid and not currency:
        raise NotAdmitted(
            "This environment has no prices, so no paid jobs.", field="tier", code="tier_not_offered"
        )
    amounts = fill(environment, spec.tier, spec.resources)
    terms = {
        "resources": amounts,
        "kinds": {slug: kinds[slug] for slug in amounts},
        "tier": spec.tier,
        "currency": currency if paid else "",
        "prices": prices if paid else {},
        "min_job_duration": limits.min_job_duration,
        "max_job_duration": longest,
        "max_queue_wait": min(waits, default=None),
        "network": environment.enable_network,
        "storage_expiry": limits.storage_expiry,
        "max_attempts": MAX_ATTEMPTS,
        "log_cap": settings.LOG_CAP_BYTES,
    }
    return {
        "terms": terms,
        "max_duration": spec.max_duration or longest,
        "queue_expires_at": queue_expiry(terms, now),
    }


def queue_expiry(terms: Mapping[str, Any], since: datetime) -> datetime | None:
    """When a job with these terms, queued (again) at `since`, expires in the queue; None = never."""
    wait = terms["max_queue_wait"]
    return since + timedelta(seconds=wait) if wait is not None else None


def _limits(environment: Environment, tier: str) -> Environment | FreeTier:
    """Where the durations and the expiry of this tier stand."""
    if tier == Tier.PAID:
        return environment
    free_tier = getattr(environment, "free_tier", None)
    if free_tier is None:
        raise NotAdmitted("This environment has no free tier.", field="tier", code="tier_not_offered")
    return free_tier
