"""Fill: from what a job asks to the amounts that it gets, before anything is reserved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError

from environments.bounds import Bound, Limits, read_bounds
from environments.constraints import settle
from environments.models import Environment, FreeResource, Resource, ResourceKind, Tier
from environments.use import ResourceUse

# What a job gets at least even where an operator's `min` is 0: it never starts unpinned, and neither its root
# process nor its folders fit into nothing. Cores and MiB; never more than the resource's own max.
FLOORS = {ResourceKind.CPU.value: 1, ResourceKind.RAM.value: 64, ResourceKind.DISK.value: 64}
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one job may have of an environment in a tier: limits by resource slug, and constraints between them."""

    tier: str
    limits: Mapping[str, Limits]
    bounds: Sequence[Bound]

    def fill(self, asked: Mapping[str, object]) -> dict[str, int]:
        """Amounts by resource slug (cores, MiB, devices, counts) for a job that asks `asked`; reads nothing.

        A resource not asked gets its min; less than min is raised to it; cpu is at least 1, ram and disk at least 64 MiB
        (or their max, if that is less). Then the constraints between resources raise or refuse. Raises ValidationError
        {"resources": [...]} that names each resource, what was asked and the most that may be: unknown ids, no whole number,
        negative, above max, nothing to run on, or against a constraint.
        """
        limits, tier = self.limits, self.tier
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
        return settle(amounts, limits, self.bounds, _for(tier))


def allowance(environment: Environment, tier: str) -> Allowance:
    """That of one environment; two statements."""
    return read_allowances([environment], tier)[environment.pk]


def read_allowances(environments: Sequence[Environment], tier: str) -> dict[int, Allowance]:
    """Those of several environments, by key; two statements for all of them. They come with their engines and hosts.

    The free tier has limits of its own; what it does not list is not available to it.
    """
    hosts = {environment.pk: environment.engine.host for environment in environments}
    limits: dict[int, dict[str, Limits]] = {key: {} for key in hosts}
    for key, slug, kind, least, largest in _limit_rows(list(hosts), tier):
        host = hosts[key]
        sizes = {} if host is None else {"ram": host.usable_memory_mib, "disk": host.usable_disk_mib}
        most = max(0, min(largest, sizes.get(kind, largest)))
        limits[key][slug] = Limits(slug, kind, max(least, min(FLOORS.get(kind, 0), most)), most)
    bounds = read_bounds(list(hosts))
    return {key: Allowance(tier, limits[key], bounds[key]) for key in hosts}


def fill(environment: Environment, tier: str, asked: Mapping[str, object]) -> dict[str, int]:
    """As `Allowance.fill`, for one job; reads two statements."""
    return allowance(environment, tier).fill(asked)


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


def _limit_rows(environment_ids: list[int], tier: str) -> Iterable[tuple[int, str, str, int, int]]:
    """Environment, resource slug, kind, least and most, in the order in which the resources were made."""
    if tier == Tier.FREE:
        parts = FreeResource.objects.filter(free_tier__environment__in=environment_ids).order_by("resource")
        return parts.values_list(
            "free_tier__environment", "resource__slug", "resource__kind", "min", "max"
        )  # fmt: skip
    offered = Resource.objects.filter(environment__in=environment_ids).order_by("pk")
    return offered.values_list("environment", "slug", "kind", "min", "max")


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
