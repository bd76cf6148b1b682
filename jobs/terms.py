"""What is agreed with a job that an environment takes: amounts, prices and limits, or why it does not take it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError

from compute_site.core.errors import NotAdmitted
from environments.access import closed, may_use, visible_to
from environments.amounts import Allowance, read_allowances
from environments.models import EngineKind, EngineState, Environment, EnvironmentState, FreeTier, Tier
from jobs.admission_reads import Prices, read_prices
from jobs.spec import Spec

MAX_ATTEMPTS = 3
TERMS_VERSION = 1


@dataclass(frozen=True, slots=True)
class Offered:
    """What the terms of a job are made from: what it may have, and at which prices (none in the free tier)."""

    allowance: Allowance
    prices: Prices


def read_offered(environments: Sequence[Environment], tier: str) -> dict[int, Offered]:
    """Of each environment, by its key; three statements for all of them. They come with their engines and hosts."""
    allowances = read_allowances(environments, tier)
    prices: dict[int, Prices] = read_prices(list(allowances)) if tier == Tier.PAID else {}
    return {key: Offered(allowances[key], prices.get(key, {})) for key in allowances}


def agree(
    environment: Environment,
    spec: Spec,
    user: AbstractBaseUser,
    now: datetime,
    *,
    restricted: bool,
    currency: str = "",
    offered: Offered | None = None,
) -> dict[str, Any]:
    """The fields of a job of `user` in this environment that say what was agreed; nothing is written.

    `restricted`: its tier has access rules; `currency`: whose prices count, empty for the first; `offered`: what was read
    of its tier already. The environment comes with its engine, host and free tier. Raises NotAdmitted and ValidationError,
    for one of which no tier is open to the user the same as for one that there is not.
    """
    if restricted and not may_use(environment, spec.tier, user):
        if not visible_to(user).filter(pk=environment.pk).exists():
            raise no_such_environment()
        raise NotAdmitted(closed(environment, spec.tier), field="environment", code="no_access")
    _check_open(environment)
    if spec.function is not None and environment.engine.kind == EngineKind.FLEET:
        text = "Remote workers run no functions yet; name another environment, or send a command."
        raise NotAdmitted(text, field="function", code="fleet_no_functions")
    return _terms(environment, spec, now, currency, offered)


def no_such_environment() -> ValidationError:
    """Also for one that is closed to who asks: a guessed name must not tell what there is."""
    text = "There is no such environment. The list of environments tells those that you may use."
    return ValidationError({"environment": ValidationError(text, code="unknown")})


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


def _terms(
    environment: Environment, spec: Spec, now: datetime, currency: str, offered: Offered | None
) -> dict[str, Any]:
    """The fields of the job that say what was agreed: they never change, whatever becomes of the environment."""
    limits = _limits(environment, spec.tier)
    longest = limits.max_job_duration
    if spec.max_duration is not None and spec.max_duration > longest:
        text = f"At most {longest} seconds in this environment and tier; asked: {spec.max_duration}."
        raise ValidationError({"max_duration": ValidationError(text, code="too_long")})
    waits = [wait for wait in (spec.max_queue_wait, environment.max_queue_wait) if wait is not None]
    offered = offered or read_offered([environment], spec.tier)[environment.pk]
    currency, prices = _prices(offered.prices, currency) if spec.tier == Tier.PAID else ("", {})
    amounts = offered.allowance.fill(spec.resources)
    terms = {
        "resources": amounts,
        "kinds": {slug: offered.allowance.limits[slug].kind for slug in amounts},
        "tier": spec.tier,
        "currency": currency,
        "prices": prices,
        "min_job_duration": limits.min_job_duration,
        "max_job_duration": longest,
        "max_queue_wait": min(waits, default=None),
        "network": environment.enable_network and environment.engine.kind == EngineKind.DOCKER,
        "storage_expiry": limits.storage_expiry,
        "max_attempts": MAX_ATTEMPTS,
        "log_cap": settings.LOG_CAP_BYTES,
    }
    return {
        "terms": terms,
        "max_duration": spec.max_duration or longest,
        "queue_expires_at": queue_expiry(terms, now),
    }


def _prices(prices: Prices, wanted: str) -> tuple[str, dict[str, str]]:
    """The currency as the price list writes it, and its prices; addresses of tokens are compared without case.

    Should two lists differ by case alone, the one that is written as `wanted` counts.
    """
    same = [currency for currency in prices if currency.lower() == wanted.lower()] if wanted else [*prices]
    currency = wanted if wanted in same else next(iter(same), None)
    if currency is None:
        text = "This environment has no prices"
        text += f" in {wanted}, so no such jobs." if wanted else ", so no paid jobs."
        raise NotAdmitted(text, field="tier", code="tier_not_offered")
    return currency, prices[currency]


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
