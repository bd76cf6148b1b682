"""What a job would get and cost, and what would refuse it: the checks of admission, and nothing written."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError

from compute_site.core.db import database_now
from compute_site.core.errors import Rejected
from environments.models import Environment
from jobs.admission import agree_on, check_account, no_account
from jobs.admission_reads import queue_and_key, read_account
from jobs.billing.charges import charge, price_per_minute
from jobs.billing.holds import check_covered, free_balance
from jobs.models import Job
from jobs.pending import estimated_wait, pending_reason
from jobs.spec import Spec
from jobs.terms import agree


@dataclass(frozen=True, slots=True)
class Quote:
    """`refusal`: what admission would raise first, or None. `job`: not saved; None where nothing could be agreed."""

    refusal: ValidationError | Rejected | None
    job: Job | None = None
    price_per_minute: Decimal = Decimal(0)
    maximum_cost: Decimal = Decimal(0)
    pending_reason: str | None = None
    estimated_wait: int | None = None


def quote(user: AbstractBaseUser, spec: Spec) -> Quote:
    """The quote of a well-formed job. Money: at most `maximum_cost` is held at its admission; time in seconds."""
    refusal: ValidationError | Rejected | None = None
    account = read_account(user.pk, spec.account)  # not locked: nothing is promised
    if account is None:
        return Quote(no_account(user, spec.account))
    now: datetime = account.now  # type: ignore[attr-defined]  # read with it
    queued, _, _ = queue_and_key(account, "")
    try:
        check_account(account, queued)
    except Rejected as error:
        refusal = error
    try:
        environment, agreed = agree_on(user, account, spec, now)
    except (ValidationError, Rejected) as error:
        return Quote(refusal or error)
    job = Job(account=account, submitted_by_id=user.pk, environment=environment, tier=spec.tier, **agreed)
    refusal = refusal or _uncovered(account.pk, job.terms, job.max_duration)
    return _told(job, refusal, now)


def fit(environment: Environment, spec: Spec) -> Quote:
    """The quote for nobody in particular: what environment, engine, host and line say, and no account or access rule.

    The environment comes with its engine, host and free tier. Nothing is written, nothing is locked.
    """
    now = database_now()
    try:
        agreed = agree(environment, spec, get_user_model()(), now, restricted=False)
    except (ValidationError, Rejected) as error:
        return Quote(error)
    job = Job(environment=environment, tier=spec.tier, **agreed)
    return _told(job, None, now)


def _told(job: Job, refusal: ValidationError | Rejected | None, now: datetime) -> Quote:
    """What a job that is not saved would cost and wait for."""
    return Quote(
        refusal,
        job,
        price_per_minute(job.terms),
        charge(job.terms, job.max_duration),
        pending_reason(job, now),
        estimated_wait(job, now),
    )


def _uncovered(account_id: int, terms: Mapping[str, Any], seconds: int) -> Rejected | None:
    try:
        check_covered(terms, seconds, free_balance(account_id, terms["currency"]))
    except Rejected as error:
        return error
    return None
