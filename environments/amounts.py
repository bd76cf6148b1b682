"""Fill: from what a job asks to the amounts that it gets, before anything is reserved."""

from collections.abc import Iterable, Mapping

from django.core.exceptions import ValidationError

from environments.bounds import Limits, read_bounds
from environments.constraints import settle
from environments.models import Environment, FreeResource, Resource, ResourceKind, Tier
from environments.use import ResourceUse

# What a job gets at least even where an operator's `min` is 0: it never starts unpinned, and neither its root
# process nor its folders fit into nothing. Cores and MiB; never more than the resource's own max.
FLOORS = {ResourceKind.CPU.value: 1, ResourceKind.RAM.value: 64, ResourceKind.DISK.value: 64}
LARGEST = 2**63 - 1


def fill(environment: Environment, tier: str, asked: Mapping[str, object]) -> dict[str, int]:
    """Amounts by resource slug (cores, MiB, devices, counts) for a job that asks `asked`; reads two statements.

    A resource not asked gets its min; less than min is raised to it; cpu is at least 1, ram and disk at least 64 MiB
    (or their max, if that is less). Then the constraints between resources raise or refuse. Raises ValidationError
    {"resources": [...]} that names each resource, what was asked and the most that may be: unknown ids, no whole number,
    negative, above max, nothing to run on, or against a constraint.
    """
    limits = limits_of(environment, tier)
    errors = [
        f"{str(slug)[:63]}: no such resource here{_for(tier)}; there are {', '.join(sorted(limits)) or 'none'}."
        for slug in asked
        if slug not in limits
    ]
    amounts: dict[str, int] = {}
    for slug, limit in limits.items():
        try:
            amounts[slug] = _amount(limit, asked.get(slug, 0), tier)
        except ValueError as error:
            errors.append(str(error))
    kinds = {limit.kind for limit in limits.values() if limit.max > 0}
    errors += [
        f"{kind}: not offered{_for(tier)}, so nothing can run." for kind in FLOORS if kind not in kinds
    ]
    if errors:
        raise ValidationError({"resources": errors})
    return settle(amounts, limits, read_bounds(environment.pk), _for(tier))


def least_amounts(uses: Iterable[ResourceUse], tier: str) -> dict[str, int]:
    """What a job of the tier gets that asks for nothing; empty where the tier has nothing to run on."""
    amounts: dict[str, int] = {}
    kinds = set()
    for use in uses:
        least, most = (use.free_tier_min, use.free_tier_max) if tier == Tier.FREE else (use.min, use.max)
        if least is not None and most is not None:
            amounts[use.slug] = max(least, min(FLOORS.get(use.kind, 0), most))
            kinds |= {use.kind} if most > 0 else set()
    return amounts if kinds >= set(FLOORS) else {}


def limits_of(environment: Environment, tier: str) -> dict[str, Limits]:
    """By slug. The free tier has limits of its own; what it does not list is not available to it."""
    if tier == Tier.FREE:
        parts = FreeResource.objects.filter(free_tier__environment=environment).order_by("resource")
        rows = list(parts.values_list("resource__slug", "resource__kind", "min", "max"))
    else:
        offered = Resource.objects.filter(environment=environment).order_by("pk")
        rows = list(offered.values_list("slug", "kind", "min", "max"))
    host = environment.engine.host
    sizes = {} if host is None else {"ram": host.usable_memory_mib, "disk": host.usable_disk_mib}
    found = {}
    for slug, kind, least, largest in rows:
        most = max(0, min(largest, sizes.get(kind, largest)))
        found[slug] = Limits(slug, kind, max(least, min(FLOORS.get(kind, 0), most)), most)
    return found


def _amount(limit: Limits, asked: object, tier: str) -> int:
    if type(asked) is not int:
        raise ValueError(f"{limit.slug}: asked {asked!r:.80}, which is no whole number.")
    if asked < 0:
        raise ValueError(f"{limit.slug}: asked {max(asked, -LARGEST)}; an amount is 0 or more.")
    if asked > limit.max:
        raise ValueError(
            f"{limit.slug}: asked {min(asked, LARGEST)}, at most {limit.max} per job{_for(tier)}."
        )
    if limit.min > limit.max:
        raise ValueError(f"{limit.slug}: a job gets at least {limit.min}{_for(tier)}, there are {limit.max}.")
    return max(asked, limit.min)


def _for(tier: str) -> str:
    return " in the free tier" if tier == Tier.FREE else ""
