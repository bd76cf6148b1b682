"""Whether somebody may use a tier of an environment. No rule = open to all; any rule = closed to all others."""

from typing import Protocol

from django.contrib.auth.models import Group
from django.db.models import Exists, OuterRef, Q, QuerySet

from environments.models import AccessKind, AccessRule, EngineState, Environment, EnvironmentState


class Person(Protocol):
    """Whoever asks: a user of the site."""

    pk: int

    def get_username(self) -> str: ...


def has_rules(tier: str) -> Exists:
    """For a query of environments: whether this tier of each has any rule, so that the open ones need no further look."""
    return Exists(AccessRule.objects.filter(environment=OuterRef("pk"), tier=tier))


def offered() -> QuerySet[Environment]:
    """Environments that take jobs or still finish some, on engines that are not disabled, by name."""
    rows = Environment.objects.exclude(state=EnvironmentState.RETIRED).exclude(
        engine__state=EngineState.DISABLED
    )
    return rows.select_related("engine__host", "free_tier").order_by("engine__name", "slug")


def offered_to(person: Person, tier: str) -> QuerySet[Environment]:
    """The offered ones whose `tier` is open to `person`."""
    rules = AccessRule.objects.filter(environment=OuterRef("pk"), tier=tier)
    groups = Group.objects.filter(user=person.pk).values("name")
    lets_in = Q(kind=AccessKind.USER, value=person.get_username()) | Q(
        kind=AccessKind.GROUP, value__in=groups
    )
    return offered().filter(~Exists(rules) | Exists(rules.filter(lets_in)))


def may_use(environment: Environment, tier: str, person: Person) -> bool:
    """Judged by user name and groups. Rules for wallets match nobody, since nobody proves one to the site yet.

    One statement, two where a rule names a group.
    """
    rules = set(
        AccessRule.objects.filter(environment=environment, tier=tier).order_by().values_list("kind", "value")
    )
    if not rules or (AccessKind.USER.value, person.get_username()) in rules:
        return True
    groups = {value for kind, value in rules if kind == AccessKind.GROUP}
    return bool(groups) and Group.objects.filter(user=person.pk, name__in=groups).exists()
