"""What is wanted, once it is known what the host has: every total, minimum and maximum as a number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from environments.importing.wanted import WantedEnvironment, WantedPart, WantedResource
from environments.models import Host, ResourceKind

Note = Callable[[str, str], None]


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


def decide(environment: WantedEnvironment, host: Host, cores: int, note: Note) -> dict[str, Decided]:
    """By slug. `cores` is how many it gets. What is more than the host has is lowered to that, with a note."""
    parts = {part.slug: part for part in environment.free_tier.parts} if environment.free_tier else {}
    found = {}
    for wanted in environment.resources:
        amounts = _amounts(wanted, host, cores, note)
        free = _free(parts[wanted.slug], wanted, amounts) if wanted.slug in parts else None
        found[wanted.slug] = Decided(wanted, amounts, free)
    return found


def _amounts(wanted: WantedResource, host: Host, cores: int, note: Note) -> Amounts:
    total = _total(wanted, host, cores)
    if wanted.total is not None and wanted.kind != ResourceKind.CPU and total != wanted.total:
        note(
            f"{wanted.path}.total",
            f"{wanted.total} MiB is more than {host} has without its reserve: {total} MiB are offered.",
        )
    if wanted.max is None:
        return Amounts(total, wanted.min, total)
    # A maximum that goes with the total of the file is not held against a total that is not the file's.
    most = wanted.max if total == wanted.total else min(wanted.max, total)
    if most != wanted.max:
        note(f"{wanted.path}.max", f"{wanted.max} is more than there is: {most}.")
    return Amounts(total, wanted.min, most)


def _total(wanted: WantedResource, host: Host, cores: int) -> int:
    sizes: Mapping[str, int] = {
        ResourceKind.RAM.value: host.usable_memory_mib,
        ResourceKind.DISK.value: host.usable_disk_mib,
    }
    if wanted.kind == ResourceKind.CPU:
        return cores
    if wanted.kind not in sizes:
        return wanted.total or 0
    size = max(0, sizes[wanted.kind])
    return size if wanted.total is None else min(wanted.total, size)


def _free(part: WantedPart, wanted: WantedResource, amounts: Amounts) -> Amounts:
    if part.total is None:
        return Amounts(amounts.total, part.min, amounts.total)
    total = part.total if amounts.total == wanted.total else min(part.total, amounts.total)
    most = total if part.max is None else part.max
    return Amounts(total, part.min, most if total == part.total else min(most, total))
