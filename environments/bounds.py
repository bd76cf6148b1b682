"""One constraint between resources as numbers: what it takes and what it allows, for given amounts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from compute_site.core.db import all_rows
from environments.models import ResourceKind, constraint_path

SIZED = (ResourceKind.RAM, ResourceKind.DISK)
GIB = 1024  # MiB: the unit of memory or disk, as far as "per unit" goes
BOUNDS_SQL = """
SELECT c.environment_id, r.slug, COALESCE(t.slug, c.target_kind), t.id IS NULL, c.per_unit, c.aggregate, c.min, c.max
  FROM environments_constraint c
  JOIN environments_resource r ON r.id = c.resource_id
  LEFT JOIN environments_resource t ON t.id = c.target_id
 WHERE c.environment_id = ANY(%s) ORDER BY c.id
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Least and most that one job may have of a resource; most is never more than the host has."""

    slug: str
    kind: str
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A row of Constraint by slugs. `target` is a slug, or a kind where `whole_kind`; `max` None = no ceiling."""

    resource: str
    target: str
    whole_kind: bool = False
    per_unit: bool = True
    aggregate: bool = False
    min: int = 0
    max: int | None = None

    @property
    def path(self) -> str:
        return constraint_path(self.resource, self.target, self.per_unit)

    def times(self, amounts: Mapping[str, int], limits: Mapping[str, Limits]) -> int:
        """How often its numbers count for these amounts, in 1024ths; 0 where its resource is not asked at all."""
        amount = amounts.get(self.resource, 0)
        if not self.per_unit:
            return GIB if amount > 0 else 0
        return amount if amount == 0 or limits[self.resource].kind in SIZED else amount * GIB


@dataclass(frozen=True, slots=True)
class Rule:
    """What acts as one on a target: a bound alone, or all bounds that add up."""

    target: str
    whole_kind: bool
    bounds: tuple[Bound, ...]

    @property
    def name(self) -> str:
        """The target in words."""
        return f"kind {self.target}" if self.whole_kind else self.target

    def members(self, limits: Mapping[str, Limits]) -> list[str]:
        """Slugs of the resources that count as the target; none where the tier does not offer it."""
        if self.whole_kind:
            return [limit.slug for limit in limits.values() if limit.kind == self.target]
        return [self.target] if self.target in limits else []

    def unit(self, limits: Mapping[str, Limits]) -> str:
        """What follows an amount of the target in words."""
        kind = limits[self.target].kind if self.target in limits else self.target if self.whole_kind else ""
        return " MiB" if kind in SIZED else ""

    def active(self, amounts: Mapping[str, int]) -> list[Bound]:
        """The bounds whose resource is asked for."""
        return [bound for bound in self.bounds if amounts.get(bound.resource, 0) > 0]

    def floor(self, amounts: Mapping[str, int], limits: Mapping[str, Limits]) -> int:
        """The least of the target: parts of a GiB round up."""
        return -(-sum(bound.min * bound.times(amounts, limits) for bound in self.bounds) // GIB)

    def ceiling(self, amounts: Mapping[str, int], limits: Mapping[str, Limits]) -> int | None:
        """The most of the target: parts of a GiB round down. None = no ceiling: nothing is asked, or one sets none."""
        found = [(bound.max, bound.times(amounts, limits)) for bound in self.active(amounts)]
        if not found or any(most is None for most, _ in found):
            return None
        return sum((most or 0) * times for most, times in found) // GIB


def read_bounds(environment_ids: Collection[int]) -> dict[int, list[Bound]]:
    """The constraints of each environment, by its key; one statement."""
    bounds: dict[int, list[Bound]] = {key: [] for key in environment_ids}
    for environment_id, *row in all_rows(BOUNDS_SQL, [list(environment_ids)]):
        bounds[environment_id].append(Bound(*row))
    return bounds


def rules_of(bounds: Iterable[Bound]) -> list[Rule]:
    """Each bound alone, but those that add up on one target together."""
    alone: list[Rule] = []
    together: dict[str, list[Bound]] = {}
    for bound in bounds:
        if bound.aggregate:
            together.setdefault(bound.target, []).append(bound)
        else:
            alone.append(Rule(bound.target, bound.whole_kind, (bound,)))
    return alone + [Rule(target, False, tuple(several)) for target, several in together.items()]
