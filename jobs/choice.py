"""Which environment a selector comes to: the cheapest that can start the job now, else the one with the shortest line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError

from compute_site.core.errors import NothingMatches, Rejected
from environments.access import offered_to
from environments.models import Environment
from environments.use import free_amounts, job_places
from jobs.billing.charges import money_text, price_per_minute
from jobs.billing.holds import check_covered, free_balance
from jobs.billing.models import Account
from jobs.caps import account_reason
from jobs.line import LONGEST, read_lines
from jobs.models import Job
from jobs.overdue import healthy_devices, is_kept_from
from jobs.pending import place_reasons, shortage
from jobs.spec import Spec
from jobs.terms import agree

MOST_TOLD = 100  # environments that are named with why not


@dataclass(frozen=True, slots=True)
class Candidate:
    """An environment that takes the job. `obstacle`: why it cannot start there now, or empty."""

    environment: Environment
    agreed: Mapping[str, Any]
    price: Decimal
    ahead: int
    alive: bool
    obstacle: str

    @property
    def cost(self) -> str:
        currency = self.agreed["terms"]["currency"]
        return f"{money_text(self.price)} {currency} per minute" if currency else "free"


def choose(
    user: AbstractBaseUser, account: Account, spec: Spec, now: datetime
) -> tuple[Environment, dict[str, Any]]:
    """The environment, and the fields of the job that were agreed there; `chosen` tells why, and why no other.

    Only environments whose tier is open to `user` are looked at or named. Nothing is written. Raises NothingMatches with
    why each of them does not take the job.
    """
    refused: dict[str, str] = {}
    taking: list[tuple[Environment, dict[str, Any]]] = []
    free = free_balance(account.pk, (spec.selector or {})["currency"])
    for environment in offered_to(user, spec.tier):
        try:
            taking.append((environment, _agree(environment, spec, user, now, free)))
        except (ValidationError, Rejected) as error:
            refused[str(environment)] = _text(error)
    if not taking:
        raise _nothing_matches(spec.tier, refused)
    found = sorted(_candidates(taking, account, spec.tier, now), key=_preference)
    best, others = found[0], found[1:]
    because = _because(best, sum(not one.obstacle for one in found))
    told = {**{str(one.environment): _why_not(one, best) for one in others}, **refused}
    chosen = {
        "environment": str(best.environment),
        "because": because,
        "others": [{"environment": name, "why_not": why} for name, why in list(told.items())[:MOST_TOLD]],
    }
    return best.environment, {**best.agreed, "chosen": chosen}


def _agree(
    environment: Environment, spec: Spec, user: AbstractBaseUser, now: datetime, free: Decimal
) -> dict[str, Any]:
    """What would be agreed there. Raises ValidationError or Rejected."""
    selector = spec.selector or {}
    host = environment.engine.host
    if host is None:
        raise Rejected("Served by remote workers, which are never chosen, only named.")
    for name, wanted in selector["labels"].items():
        if (there := environment.labels.get(name)) != wanted:
            raise Rejected(f"Label {name} is {there}." if there is not None else f"It has no label {name}.")
    wanted = selector["architecture"]
    if wanted is not None and host.architecture != wanted:
        raise Rejected(f"Its architecture is {host.architecture}.")
    agreed = agree(environment, spec, user, now, restricted=False, currency=selector["currency"])
    price, most = price_per_minute(agreed["terms"]), selector["max_price_per_minute"]
    if most is not None and price > Decimal(most):
        raise Rejected(f"It costs {money_text(price)} {selector['currency']} per minute, more than {most}.")
    check_covered(agreed["terms"], agreed["max_duration"], free)
    return agreed


def _candidates(
    taking: list[tuple[Environment, dict[str, Any]]], account: Account, tier: str, now: datetime
) -> Iterator[Candidate]:
    """With what stands in the way of a start now; a few statements for all of them."""
    keys = [environment.pk for environment, _ in taking]
    uses, lines, places = (
        free_amounts([environment for environment, _ in taking]),
        read_lines(keys, now),
        job_places(keys),
    )
    healthy = healthy_devices(keys)
    capped = account_reason(account.pk)
    for environment, agreed in taking:
        ahead = sum(one.is_before(tier) for one in lines[environment.pk])
        dead = next(place_reasons(environment, now), "")
        obstacles = [dead, "the account runs as many jobs as it may" if capped else ""]
        running, allowed = places[environment.pk, tier]
        obstacles.append(f"{running} of at most {allowed} {tier} jobs run" if running == allowed else "")
        obstacles += [
            shortage(use, amount, tier, healthy)
            for slug, amount in agreed["terms"]["resources"].items()
            if amount > (use := uses[environment.pk][slug]).room(tier)
        ]
        obstacles.append(f"{_jobs(ahead)} there" if ahead else "")
        obstacle = next(filter(None, obstacles), "")
        if not obstacle and is_kept_from(
            Job(account=account, environment=environment, tier=tier, **agreed), now
        ):
            obstacle = "what it needs is kept for a job that waited longer"
        price = price_per_minute(agreed["terms"])
        yield Candidate(environment, agreed, price, ahead, not dead, obstacle)


def _preference(one: Candidate) -> tuple[Any, ...]:
    """Those that can start now by price; then those whose engine lives by their line, then by price."""
    if not one.obstacle:
        return 0, one.price, 0, str(one.environment)
    return 1 if one.alive else 2, one.ahead, one.price, str(one.environment)


def _because(best: Candidate, startable: int) -> str:
    if not best.obstacle:
        only = "the only one" if startable == 1 else f"the cheapest of {startable}"
        return f"{only} that can start it now; {best.cost}"
    return f"none can start it now; the shortest line, {_jobs(best.ahead)} there; {best.cost}"


def _why_not(one: Candidate, best: Candidate) -> str:
    if one.obstacle:
        line = f"; {_jobs(one.ahead)} there" if best.obstacle and not one.obstacle.endswith(" there") else ""
        return f"cannot start it now: {one.obstacle}{line}; {one.cost}"
    return f"as cheap, and later by name: {one.cost}" if one.price == best.price else f"dearer: {one.cost}"


def _jobs(count: int) -> str:
    """A longer line was not read to its end."""
    if count > LONGEST:
        return f"more than {LONGEST} jobs wait"
    return {0: "nobody waits", 1: "1 job waits"}.get(count, f"{count} jobs wait")


def _text(error: ValidationError | Rejected) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


def _nothing_matches(tier: str, refused: Mapping[str, str]) -> NothingMatches:
    if not refused:
        return NothingMatches(f"No environment is open to you in the {tier} tier.", field="selector")
    told = [f"{name}: {why}" for name, why in list(refused.items())[:MOST_TOLD]]
    text = f"None of the {len(refused)} environments that are open to you takes this job."
    return NothingMatches(text, field="selector", details=told)
