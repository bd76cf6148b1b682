"""What is agreed with a job that an environment takes: amounts, prices and limits, or why it does not take it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError

from compute_site.core.errors import NotAdmitted
from environments.access import closed, may_use, visible_to
from environments.models import EngineKind, EngineState, Environment, EnvironmentState, FreeTier, Tier
from environments.reservations import fill
from jobs.admission_reads import read_offer
from jobs.spec import Spec

MAX_ATTEMPTS = 3
TERMS_VERSION = 1


def agree(
    environment: Environment,
    spec: Spec,
    user: AbstractBaseUser,
    now: datetime,
    *,
    restricted: bool,
    currency: str = "",
) -> dict[str, Any]:
    """The fields of a job of `user` in this environment that say what was agreed; nothing is written.

    `restricted`: its tier has access rules; `currency`: whose prices count, empty for the first. The environment comes
    with its engine, host and free tier. Raises NotAdmitted and ValidationError, for one of which no tier is open to the
    user the same as for one that there is not.
    """
    if restricted and not may_use(environment, spec.tier, user):
        if not visible_to(user).filter(pk=environment.pk).exists():
            raise no_such_environment()
        raise NotAdmitted(closed(environment, spec.tier), field="environment", code="no_access")
    _check_open(environment)
    if spec.function is not None and environment.engine.kind == EngineKind.FLEET:
        text = "Remote workers run no functions yet; name another environment, or send a command."
        raise NotAdmitted(text, field="function", code="fleet_no_functions")
    return _terms(environment, spec, now, currency)


def no_such_environment() -> ValidationError:
    """Also for one that is closed to who asks: a guessed name must not tell what there is."""
    return ValidationError({"environment": ValidationError("There is no such environment.", code="unknown")})


def _check_open(environment: Environment) -> None:
    """Whether it takes new jobs at all."""
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


def _terms(environment: Environment, spec: Spec, now: datetime, currency: str) -> dict[str, Any]:
    """The fields of the job that say what was agreed: they never change, whatever becomes of the environment."""
    limits = _limits(environment, spec.tier)
    longest = limits.max_job_duration
    if spec.max_duration is not None and spec.max_duration > longest:
        text = f"At most {longest} seconds in this environment and tier; asked: {spec.max_duration}."
        raise ValidationError({"max_duration": ValidationError(text, code="too_long")})
    waits = [wait for wait in (spec.max_queue_wait, environment.max_queue_wait) if wait is not None]
    paid = spec.tier == Tier.PAID
    kinds, currency, prices = read_offer(environment.pk, currency)
    if paid and not prices:
        text = "This environment has no prices"
        text += f" in {currency}, so no such jobs." if currency else ", so no paid jobs."
        raise NotAdmitted(text, field="tier", code="tier_not_offered")
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
