"""Step 1: a well-formed job is admitted, with its terms, or refused with nothing written."""

import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction

from compute_site.core.canonical import canonical
from compute_site.core.errors import IdempotencyConflict, NotAdmitted, NothingMatches, QuotaExceeded
from environments.access import has_rules
from environments.models import Environment, EnvironmentState
from jobs.admission_reads import lock_account, queue_and_key, read_account
from jobs.billing.holds import place
from jobs.billing.models import Account, Membership
from jobs.choice import Choice, choose, confirm
from jobs.dispatch import knock_on_commit
from jobs.models import IdempotencyKey, Job, JobStatus
from jobs.spec import SPEC_VERSION, Spec
from jobs.terms import MAX_ATTEMPTS, TERMS_VERSION, agree, no_such_environment
from jobs.transitions import record_event


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
    wanted = account.public_id if account is not None else spec.account
    likely = _choose_ahead(user, wanted, spec) if spec.selector is not None else None
    with transaction.atomic():
        account = lock_account(user.pk, wanted)
        if account is None:
            raise no_account(user, wanted)
        queued, earlier, earlier_digest = queue_and_key(account, idempotency_key)
        if earlier is not None:
            return _replay(earlier, earlier_digest, digest), True
        check_account(account, queued)
        job = _queue(user, account, spec, body, likely)
        place(job)
        if idempotency_key:
            IdempotencyKey.objects.create(account=account, key=idempotency_key, body_sha256=digest, job=job)
        knock_on_commit(job.environment.engine)
    return job, False


def _choose_ahead(user: AbstractBaseUser, wanted: UUID | None, spec: Spec) -> Choice | None:
    """What the selector comes to before the account is locked, since this looks at every environment: under the lock
    only the chosen one is looked at again. None where nothing is chosen: what refuses it is told under the lock.
    """
    account = read_account(user.pk, wanted)
    if account is None:
        return None
    try:
        return choose(user, account, spec, account.now)  # type: ignore[attr-defined]
    except NothingMatches:
        return None


def agree_on(
    user: AbstractBaseUser, account: Account, spec: Spec, now: datetime, likely: Choice | None = None
) -> tuple[Environment, dict[str, Any]]:
    """The environment, named or chosen by the selector, and the fields of the job that were agreed there. `likely`: what
    the selector came to a moment ago.

    Nothing is written. Raises what refuses the job: ValidationError or Rejected.
    """
    if spec.selector is not None:
        choice = likely and confirm(likely, user, account, spec, now)
        choice = choice or choose(user, account, spec, now)
        return choice.environment, choice.agreed
    environment, restricted = _find_environment(spec.environment or "", spec.tier)
    return environment, agree(environment, spec, user, now, restricted=restricted)


def _queue(
    user: AbstractBaseUser, account: Account, spec: Spec, body: dict[str, Any], likely: Choice | None
) -> Job:
    """The job's row and its first events; whatever refuses it raises before anything is written."""
    now = account.now  # type: ignore[attr-defined]  # read with the lock
    environment, agreed = agree_on(user, account, spec, now, likely)
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
        **agreed,
    )
    job.save(force_insert=True)
    record_event(job.pk, JobStatus.QUEUED)
    if job.chosen is not None:
        because = job.chosen["because"]
        record_event(
            job.pk, "chosen", f"{environment}: {because}", environment=str(environment), because=because
        )
    return job


def no_account(user: AbstractBaseUser, wanted: UUID | None) -> ValidationError:
    """Why `lock_account` found none."""
    if wanted:
        message, code = "You are a member of no such account.", "unknown"
    elif Membership.objects.filter(user=user.pk).exists():
        message, code = (
            "You are a member of several accounts: name the one that the job belongs to.",
            "required",
        )
    else:
        message, code = (
            "You are a member of no account: an administrator makes you one in the admin.",
            "unknown",
        )
    return ValidationError({"account": ValidationError(message, code=code)})


def _replay(job_id: int, earlier_digest: str | None, digest: str) -> Job:
    if earlier_digest != digest:
        raise IdempotencyConflict("This Idempotency-Key was used before with another body.")
    return Job.objects.select_related("account", "environment__engine").get(pk=job_id)


def check_account(account: Account, queued: int) -> None:
    """Whether the account may have one more job. Raises NotAdmitted or QuotaExceeded."""
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
        raise no_such_environment()
    return environment, environment.restricted
