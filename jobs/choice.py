"""Which environment a selector comes to: the cheapest that can start the job now, else the one with the shortest line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError

from compute_site.core.errors import NothingMatches, Rejected
from environments.access import Person, offered_to
from environments.models import Environment
from jobs.billing.charges import money_text, price_per_minute
from jobs.billing.holds import check_covered, free_balances
from jobs.billing.models import Account
from jobs.line import LONGEST, Waiting, read_lines
from jobs.models import Job
from jobs.obstacles import KEPT, Obstacles
from jobs.spec import Spec
from jobs.terms import Offered, agree, read_offered

MOST_TOLD = 100  # environments that are named with why not
Refused = dict[str, str]  # by the environment's name: why it does not take the job


@dataclass(frozen=True, slots=True)
class Candidate:
    """An environment that takes the job. `obstacle`: why it cannot start there now, or empty; `may_end`: whether
    waiting may help.
    """

    environment: Environment
    agreed: Mapping[str, Any]
    price: Decimal
    ahead: int
    may_end: bool
    obstacle: str

    @property
    def cost(self) -> str:
        currency = self.agreed["terms"]["currency"]
        return f"{money_text(self.price)} {currency} per minute" if currency else "free"

    def is_as(self, other: "Candidate") -> bool:
        """Whether the choice would come out the same with the other in its place: all but the time is the same."""
        later = {**self.agreed, "queue_expires_at": other.agreed["queue_expires_at"]}
        return replace(self, agreed=later) == other


@dataclass(frozen=True, slots=True)
class Choice:
    """What a selector came to. `told`: why, and why no other."""

    best: Candidate
    told: Mapping[str, Any]

    @property
    def environment(self) -> Environment:
        return self.best.environment

    @property
    def agreed(self) -> dict[str, Any]:
        """The fields of the job that were agreed there."""
        return {**self.best.agreed, "chosen": self.told}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks for what, and when."""

    user: AbstractBaseUser
    account: Account
    spec: Spec
    now: datetime


def choose(user: AbstractBaseUser, account: Account, spec: Spec, now: datetime) -> Choice:
    """The environment that a selector comes to, of those whose tier is open to `user`; no other is looked at or named.

    Nothing is written, and as many statements read a thousand environments as one. Raises NothingMatches with why each
    of them does not take the job.
    """
    found, refused = _look(list(offered_to(user, spec.tier)), _Asked(user, account, spec, now))
    if not found:
        raise _nothing_matches(spec.tier, refused)
    found.sort(key=_preference)
    best, others = found[0], found[1:]
    told = {**{str(one.environment): _why_not(one, best) for one in others}, **refused}
    chosen = {
        "environment": str(best.environment),
        "because": _because(best, sum(not one.obstacle for one in found)),
        "others": [{"environment": name, "why_not": why} for name, why in list(told.items())[:MOST_TOLD]],
    }
    return Choice(best, chosen)


def confirm(
    choice: Choice, user: AbstractBaseUser, account: Account, spec: Spec, now: datetime
) -> Choice | None:
    """The same choice as of `now`, if nothing has changed since where it was made: access, terms, what the account can
    pay, the line, what is in the way. Only the chosen environment is looked at.
    """
    rows = list(offered_to(user, spec.tier).filter(pk=choice.environment.pk))
    found, _ = _look(rows, _Asked(user, account, spec, now))
    return replace(choice, best=found[0]) if found and found[0].is_as(choice.best) else None


def told_to(reader: Person, job: Job) -> dict[str, Any] | None:
    """Why the job's selector came to its environment, for `reader`; None for a job without a selector.

    What it tells of others was told by the rights of whoever submitted the job. Of those whose tier is not open to the
    reader (any more, or that are no longer offered) only the number is told: `not_shown`.
    """
    if job.chosen is None:
        return None
    others = job.chosen["others"]
    names = {one["environment"] for one in others}
    if names and job.submitted_by_id != reader.pk:
        names &= {str(one) for one in offered_to(reader, job.tier)}
    shown = [one for one in others if one["environment"] in names]
    return {**job.chosen, "others": shown, "not_shown": len(others) - len(shown)}


def _look(environments: Sequence[Environment], asked: _Asked) -> tuple[list[Candidate], Refused]:
    """Which of them take the job, and why the others do not; a bounded number of statements for all of them."""
    account, tier = asked.account, asked.spec.tier
    offered, free = read_offered(environments, tier), free_balances(account.pk)
    jobs: list[tuple[Job, dict[str, Any]]] = []
    refused: Refused = {}
    for environment in environments:
        try:
            agreed = _agree(asked, environment, offered[environment.pk], free)
        except (ValidationError, Rejected) as error:
            refused[str(environment)] = _text(error)
        else:
            jobs.append((Job(account=account, environment=environment, tier=tier, **agreed), agreed))
    return list(_candidates(jobs, account, asked.now)), refused


def _agree(
    asked: _Asked, environment: Environment, offered: Offered, free: Mapping[str, Decimal]
) -> dict[str, Any]:
    """What would be agreed there; `free`: the account's balances. Raises ValidationError or Rejected."""
    selector = asked.spec.selector or {}
    host = environment.engine.host
    if host is None:
        raise Rejected("Served by remote workers, which are never chosen, only named.")
    for name, wanted in selector["labels"].items():
        if (there := environment.labels.get(name)) != wanted:
            raise Rejected(f"Label {name} is {there}." if there is not None else f"It has no label {name}.")
    wanted = selector["architecture"]
    if wanted is not None and host.architecture != wanted:
        raise Rejected(f"Its architecture is {host.architecture}.")
    prices = {"currency": selector["currency"], "offered": offered}
    agreed = agree(environment, asked.spec, asked.user, asked.now, restricted=False, **prices)
    terms, most = agreed["terms"], selector["max_price_per_minute"]
    price = price_per_minute(terms)
    if most is not None and price > Decimal(most):
        raise Rejected(f"It costs {money_text(price)} {terms['currency']} per minute, more than {most}.")
    check_covered(terms, agreed["max_duration"], free.get(terms["currency"], Decimal(0)))
    return agreed


def _candidates(
    jobs: Sequence[tuple[Job, dict[str, Any]]], account: Account, now: datetime
) -> Iterator[Candidate]:
    """Of what the job would be in each environment: with what stands in the way of a start now."""
    environments = [job.environment for job, _ in jobs]
    lines = read_lines([one.pk for one in environments], now)
    obstacles = Obstacles(environments, account.pk, now)
    for job, agreed in jobs:
        ahead = _ahead(lines[job.environment_id], job.tier)
        reasons = [*obstacles.of(job), *([f"{_jobs(ahead)} there"] if ahead else [])]
        if not reasons and obstacles.is_kept_from(job):
            reasons.append(KEPT)
        price = price_per_minute(agreed["terms"])
        yield Candidate(
            job.environment, agreed, price, ahead, obstacles.may_end(job), next(iter(reasons), "")
        )


def _ahead(line: Sequence[Waiting], tier: str) -> int:
    return sum(one.is_before(tier) for one in line)


def _preference(one: Candidate) -> tuple[Any, ...]:
    """Those that can start now by price; then those where waiting may help by their line, then by price."""
    if not one.obstacle:
        return 0, one.price, 0, str(one.environment)
    return 1 if one.may_end else 2, one.ahead, one.price, str(one.environment)


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
