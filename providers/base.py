"""The contract that every provider keeps. Money is in USD; a price is per hour, either per GPU or for the whole pod."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What to rent. `max_lifetime_hours` and `max_price_per_hour` (per GPU) are the caps; both are required."""

    name: str
    image: str  # Without tag and digest.
    digest: str  # sha256: and 64 hexadecimal digits.
    max_lifetime_hours: Any
    max_price_per_hour: Any
    gpu_count: int = 1
    gpu_type: str = ""  # Part of the offer's type, any case; empty = any.
    tag: str = ""  # Information only.
    env: dict[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = (22,)
    ssh_keys: tuple[str, ...] = ()
    startup_command: str = ""
    offer_id: str = ""  # Only this offer, if it keeps the caps.


@dataclass(frozen=True, slots=True)
class Offer:
    """What a provider has free now. Fewer GPUs than `gpu_count` can be had only down to `smallest`."""

    id: str
    gpu_type: str
    gpu_count: int
    price_per_gpu_hour: Decimal
    price_per_hour: Decimal
    provider: str
    smallest: int = 1
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


class InstanceState(StrEnum):
    """Providers have dozens of words. `ended` may still be listed and billed: it is not gone."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Instance:
    """One rented machine as the provider tells it. `price_per_hour` is for all of it; None = not told."""

    id: str
    name: str
    status: InstanceState
    price_per_hour: Decimal | None
    provider: str
    told: str = ""  # The provider's own word for its state.
    ends_at: datetime | None = None  # When the provider itself will end it.
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


class Provider(Protocol):
    """Synchronous, with a timeout on everything. Every method may raise `ProviderError`."""

    kind: str
    has_own_clock: bool
    """Whether the provider itself ends an instance at a time."""

    def list_offers(self, max_price: Decimal | None = None) -> list[Offer]:
        """What is free now, at most `max_price` per GPU and hour; cheapest first."""

    def provision(self, spec: InstanceSpec, idempotency_key: str) -> Instance:
        """Rent what `spec` says. After an error whose `instance_id` is set, or OutcomeUnknown, something may exist."""

    def status(self, instance_id: str) -> Instance:
        """One instance. Raises NotFound."""

    def list_instances(self) -> list[Instance]:
        """Everything of this account, whole or not at all: a part that cannot be read is MalformedResponse."""

    def logs(self, instance_id: str, follow: bool = False) -> Iterator[bytes]:
        """The instance's log in pieces."""

    def terminate(self, instance_id: str) -> None:
        """Ask for its end. What is gone already is a success."""

    def verify_terminated(self, instance_id: str) -> bool:
        """One good listing without it. One is not enough to call it gone."""

    def bound_lifetime(self, instance_id: str, ends_at: datetime) -> None:
        """Have the provider end it at that time, where it can; repeating is harmless."""

    def balance(self) -> Decimal:
        """Credit left."""
