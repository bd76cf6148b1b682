"""What is wanted, once it is known what the host has: every total, minimum and maximum as a number."""

from dataclasses import dataclass

from django.core.exceptions import ValidationError

from environments.importing.plan import TakeNote
from environments.importing.wanted import WantedEnvironment, WantedPart, WantedResource
from environments.models import Host, ResourceKind


@dataclass(frozen=True, slots=True)
class Amounts:
    """Cores, MiB, devices or counts; 0 <= min <= max <= total is still to be checked."""

    total: int
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Decided:
    """One resource with its numbers, and those of its free part where there is one."""

    wanted: WantedResource
    amounts: Amounts
    free: Amounts | None


def decide(environment: WantedEnvironment, host: Host, cores: int, note: TakeNote) -> dict[str, Decided]:
    """By slug. `cores` is how many it gets. More memory or disk than the host has is kept, with a note (ADR 0007).

    Raises ValidationError with our paths where a job would get more than there is at least, so that none could run.
    """
    parts = {part.slug: part for part in environment.free_tier.parts} if environment.free_tier else {}
    found: dict[str, Decided] = {}
    errors: dict[str, str] = {}
    for wanted in environment.resources:
        size, part = _size(wanted.kind, host), parts.get(wanted.slug)
        amounts = _amounts(wanted, cores, size, note)
        one = Decided(wanted, amounts, None if part is None else _free(part, wanted, amounts))
        found[wanted.slug] = one
        if size is not None:
            errors |= _held_against(one, size, host, note)
    if errors:
        raise ValidationError(errors)
    return found


def _held_against(one: Decided, size: int, host: Host, note: TakeNote) -> dict[str, str]:
    """Notes a total that the host does not have; returns what is wrong with the least that a job would get."""
    has = f"{host} has without its reserve"
    if one.amounts.total > size:
        text = f"{one.amounts.total} MiB is more than {has}: it is kept, {size} MiB are offered."
        note(f"{one.wanted.path}.total", text)
    least = {f"resources.{one.wanted.slug}.min": one.amounts.min}
    if one.free is not None:
        least[f"free_tier.resources.{one.wanted.slug}.min"] = one.free.min
    return {
        path: f"{amount} MiB is more than {has} ({size} MiB), so no job could run; lower it."
        for path, amount in least.items()
        if amount > size
    }


def _size(kind: str, host: Host) -> int | None:
    """What the host has of it without its reserve, in MiB; None where nothing is measured."""
    sizes = {ResourceKind.RAM.value: host.usable_memory_mib, ResourceKind.DISK.value: host.usable_disk_mib}
    return max(0, sizes[kind]) if kind in sizes else None


def _amounts(wanted: WantedResource, cores: int, size: int | None, note: TakeNote) -> Amounts:
    total = wanted.total if wanted.total is not None else size or 0
    if wanted.kind == ResourceKind.CPU:
        total = cores
    if wanted.max is None:
        return Amounts(total, wanted.min, total)
    # A maximum that goes with the total of the file is not held against a total that is not the file's.
    most = wanted.max if total == wanted.total else min(wanted.max, total)
    if most != wanted.max:
        note(f"{wanted.path}.max", f"{wanted.max} is more than there is: {most}.")
    return Amounts(total, wanted.min, most)


def _free(part: WantedPart, wanted: WantedResource, amounts: Amounts) -> Amounts:
    if part.total is None:
        return Amounts(amounts.total, part.min, amounts.total)
    total = part.total if amounts.total == wanted.total else min(part.total, amounts.total)
    most = total if part.max is None else part.max
    return Amounts(total, part.min, most if total == part.total else min(most, total))
