"""Whether somebody may use a tier of an environment. No rule = open to all; any rule = closed to all others."""

from collections.abc import Collection
from typing import Protocol

from django.contrib.auth.models import Group
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import CharField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from environments.models import (
    AccessKind,
    AccessListEntry,
    AccessRule,
    EngineState,
    Environment,
    EnvironmentState,
    PriceList,
    Tier,
    WalletAddress,
)

PLURAL = {
    AccessKind.USER: "named users",
    AccessKind.GROUP: "groups",
    AccessKind.ADDRESS: "wallet addresses",
    AccessKind.ACCESS_LIST: "access lists",
}


class Person(Protocol):
    """Whoever asks: a user of the site."""

    pk: int

    def get_username(self) -> str: ...


def has_rules(tier: str) -> Exists:
    """For a query of environments: whether this tier of each has any rule, so that the open ones need no further look."""
    return Exists(_rules(tier))


def is_open(tier: str, person: Person) -> Q:
    """For a query of environments: whether this tier of each is open to the person."""
    return Q(~Exists(_rules(tier))) | Q(Exists(_rules(tier).filter(lets_in(person))))


def offered(person: Person) -> QuerySet[Environment]:
    """Environments that take jobs or still finish some, on engines that are not disabled, by name; of those that measure
    their host only what is open to `person`."""
    rows = Environment.objects.exclude(state=EnvironmentState.RETIRED).exclude(
        engine__state=EngineState.DISABLED
    )
    rows = rows.filter(Q(benchmark=False) | is_open(Tier.PAID, person))
    return rows.select_related("engine__host", "free_tier").order_by("engine__name", "slug")


def offered_to(person: Person, tier: str) -> QuerySet[Environment]:
    """The offered ones whose `tier` is open to `person`; not those that measure their host: they are no offer."""
    return offered(person).filter(is_open(tier, person), benchmark=False)


def visible_to(person: Person) -> QuerySet[Environment]:
    """The offered ones of which `person` may use some tier that there is: the paid one if there are prices, or the free.

    Each comes with `paid_open` and `free_open`, and with `paid_rules` and `free_rules`: which kinds of rules there are.
    """
    rows = offered(person)
    for tier in Tier.values:
        kinds = ArraySubquery(_rules(tier).order_by("kind").values("kind").distinct())
        rows = rows.annotate(**{f"{tier}_open": is_open(tier, person), f"{tier}_rules": kinds})
    prices = Exists(PriceList.objects.filter(environment=OuterRef("pk")))
    return rows.filter(Q(prices, paid_open=True) | Q(free_open=True, free_tier__isnull=False))


def may_use(environment: Environment, tier: str, person: Person) -> bool:
    """Judged by user name, groups, the wallets that an operator vouches for, and access lists; one or two statements."""
    rules = AccessRule.objects.filter(environment=environment, tier=tier)
    return rules.filter(lets_in(person)).exists() or not rules.exists()


def closed(environment: Environment, tier: str) -> str:
    """What is told to whom no rule lets in: which kinds of rules there are, and nobody's name."""
    rules = AccessRule.objects.filter(environment=environment, tier=tier)
    told = _told(rules.order_by().values_list("kind", flat=True))
    return f"The {tier} tier of this environment is not open to you: only to {told}."


def explained(is_open: bool, kinds: Collection[str]) -> str:
    """Who may use a tier with rules of these kinds, as somebody reads it to whom it is open or not."""
    if not kinds:
        return "Open to everybody."
    return f"{'Open to you, and else' if is_open else 'Not open to you:'} only to {_told(kinds)}."


def _told(kinds: Collection[str]) -> str:
    there = set(kinds)
    return " and ".join(words for kind, words in PLURAL.items() if kind in there) or "others"


def lets_in(person: Person) -> Q:
    """For a query of access rules: those that name the person, in any of the ways there are."""
    return (
        Q(kind=AccessKind.USER, value=person.get_username())
        | Q(kind=AccessKind.GROUP, value__in=Group.objects.filter(user=person.pk).values("name"))
        | Q(kind=AccessKind.ADDRESS, value__in=_wallets(person).values("address"))
        | Q(kind=AccessKind.ACCESS_LIST, value__in=_entries(person).values("access_list__name"))
    )


def _rules(tier: str) -> QuerySet[AccessRule]:
    return AccessRule.objects.filter(environment=OuterRef("pk"), tier=tier)


def _wallets(person: Person) -> QuerySet[WalletAddress]:
    return WalletAddress.objects.filter(user=person.pk)


def _entries(person: Person) -> QuerySet[AccessListEntry]:
    """Entries of lists that are the person; a list of one chain takes no wallet of another chain."""
    name = ExpressionWrapper(OuterRef("access_list__name"), output_field=CharField())
    wallets = _wallets(person).filter(address=OuterRef("address")).annotate(listed=name)
    on_its_chain = Q(chain="") | ~Q(listed__contains=":") | Q(listed__startswith=Concat("chain", Value(":")))
    return AccessListEntry.objects.filter(Q(user=person.pk) | Q(Exists(wallets.filter(on_its_chain))))
