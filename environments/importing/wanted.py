"""What a file wants, in our words and units, before it is known what the host has. `path` is where it stands there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from environments.models import constraint_path

Rule = tuple[str, str]  # kind and value of an access rule
InitEntry = tuple[str, str, str]  # kind, name and value of an entry of a device's init


@dataclass(frozen=True, slots=True)
class WantedDevice:
    """A device by its id, with what the file tells about it; `init` None = it says nothing of that.

    In place of an id may stand its device file (/dev/...), by which it is known on its host alone.
    """

    uuid: str
    platform: str
    model: str
    memory_mib: int
    driver_version: str
    path: str
    init: frozenset[InitEntry] | None = None


@dataclass(frozen=True, slots=True)
class WantedCores:
    """Cores by name, or as many of `among` (None = all of the host) as `total` says (None = all that are left)."""

    path: str
    named: tuple[int, ...] | None = None
    total: int | None = None
    among: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WantedResource:
    """Cores, MiB, devices or counts. `total` None = what the host has; `max` None = the total."""

    slug: str
    kind: str
    total: int | None
    min: int
    max: int | None
    path: str
    sharing: str = "exclusive"
    devices: tuple[WantedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class WantedConstraint:
    """A constraint between resources, by slug; `target_kind` in place of a target is empty otherwise."""

    path: str
    resource: str
    target: str
    target_kind: str
    per_unit: bool
    aggregate: bool
    min: int
    max: int | None

    @property
    def key(self) -> str:
        """What only one constraint of an environment has: our path of it."""
        return constraint_path(self.resource, self.target or self.target_kind, self.per_unit)


@dataclass(frozen=True, slots=True)
class WantedPart:
    """The free tier's share of a resource. `total` None = all of it."""

    slug: str
    total: int | None
    min: int
    max: int | None
    path: str


@dataclass(frozen=True, slots=True)
class WantedFreeTier:
    """`fields` are those of FreeTier."""

    fields: Mapping[str, Any]
    parts: Sequence[WantedPart]
    path: str


@dataclass(frozen=True, slots=True)
class WantedPrices:
    """Prices of one unit per minute by resource, in one currency."""

    currency: str
    prices: Mapping[str, Decimal]
    path: str


@dataclass(frozen=True, slots=True)
class WantedEnvironment:
    """One environment; `fields` are those of Environment, `access` the rules by tier."""

    slug: str
    path: str
    fields: Mapping[str, Any]
    cores: WantedCores
    resources: Sequence[WantedResource]
    constraints: Sequence[WantedConstraint]
    free_tier: WantedFreeTier | None
    price_lists: Sequence[WantedPrices]
    access: Mapping[str, Sequence[Rule]]


@dataclass(frozen=True, slots=True)
class WantedEngine:
    """One engine; `fields` are what every import writes, `endpoint` and `tls` only count when it is made."""

    path: str
    endpoint: str
    tls: Mapping[str, str]
    fields: Mapping[str, Any]
    environments: Sequence[WantedEnvironment] = field(default_factory=list)
