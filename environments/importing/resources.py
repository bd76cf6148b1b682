"""Resources of an environment as a file writes them: of its own, or references into the engine's pool."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError

from compute_site.core.numbers import shown
from environments.cpuset import parse_cores, unique_cores
from environments.importing.constraints import read_constraints
from environments.importing.devices import read_devices
from environments.importing.reading import Reading
from environments.importing.wanted import WantedConstraint, WantedCores, WantedResource
from environments.models import ResourceKind
from environments.models.resource import KIND_TWICE, OF_ANOTHER_KIND, PHYSICAL, SLUG_TWICE
from environments.resources import usual_sharing

NOT_SLUG = re.compile(r"[^a-z0-9]+")
DEVICE_ONLY = ("description", "platform", "driverVersion", "memoryTotal", "kind")


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource: what the environment says, over what the engine's pool says."""

    own: Reading
    pool: Reading | None = None

    def at(self, key: str) -> Reading:
        """Where this key is to be read."""
        return self.pool if self.pool is not None and key not in self.own else self.own

    @property
    def parts(self) -> list[Reading]:
        return [self.own] if self.pool is None else [self.own, self.pool]


def slug_at(reading: Reading, key: str, text: str) -> str:
    """`text` in the letters that ids have here, with a note when it is spelt otherwise there."""
    slug = NOT_SLUG.sub("-", text.lower()).strip("-")
    if not slug:
        reading.report.refuse(reading.at(key), f"Found {shown(text)}; write letters, digits and hyphens.")
    elif slug != text:
        reading.report.note(reading.at(key), f"{shown(text)} is called {slug} here.")
    return slug


def read_resources(
    environment: Reading, pool: Mapping[str, Reading] | None
) -> tuple[dict[str, WantedResource], WantedCores, list[WantedConstraint]]:
    """Resources by the id that the file has for them, which cores the environment gets, constraints between resources.

    cpu and ram that are not named take what is there. `pool` is None where the engine has none.
    """
    found: dict[str, WantedResource] = {}
    cores = None
    entries: dict[str, Entry] = {}
    for entry in _entries(environment, pool):
        name = entry.own.text("id")
        resource = _resource(entry, name)
        if name in found or resource.slug in {other.slug for other in found.values()}:
            environment.report.refuse(entry.own.at("id"), SLUG_TWICE)
            continue
        if resource.kind in PHYSICAL and resource.kind in {other.kind for other in found.values()}:
            where = entry.at("type")
            where.report.refuse(where.at("type" if "type" in where else "id"), KIND_TWICE)
            continue
        found[name], entries[name] = resource, entry
        if resource.kind == ResourceKind.CPU:
            cores = _cores(entry, environment, resource)
    if cores is None:
        cores = _named_cores(environment) or WantedCores(environment.at("resources"))
    for kind in (ResourceKind.CPU, ResourceKind.RAM):
        if not any(resource.kind == kind for resource in found.values()):
            found[kind.value] = _whole(kind, environment)
    _check_disk(environment, found, pool)
    return found, cores, _constraints(entries, found)


def _constraints(entries: Mapping[str, Entry], found: Mapping[str, WantedResource]) -> list[WantedConstraint]:
    """Those of the environment's entry in place of the pool's; an empty list there is none."""
    rows = [
        (row, found[name])
        for name, entry in entries.items()
        for row in entry.at("constraints").objects("constraints")
    ]
    types = {found[name].slug: entry.at("type").text("type").lower() for name, entry in entries.items()}
    return read_constraints(rows, found, types)


def _entries(environment: Reading, pool: Mapping[str, Reading] | None) -> Iterator[Entry]:
    if pool is not None and "resources" not in environment:
        yield from (Entry(reading) for reading in pool.values())
        return
    for own in environment.objects("resources"):
        name = own.text("id")
        if not name:
            own.report.refuse(own.at("id"), "Found no id; every resource has one.")
        elif pool is not None and name in pool:
            yield Entry(own, pool[name])
        elif name not in PHYSICAL and not any(key in own for key in ("total", "init", "type")):
            there = f"there are {', '.join(pool)}" if pool else "it has none"
            own.report.refuse(own.at("id"), f"{name} is not among the engine's resources; {there}.")
        else:
            yield Entry(own)


def _check_disk(
    environment: Reading, found: dict[str, WantedResource], pool: Mapping[str, Reading] | None
) -> None:
    if any(resource.kind == ResourceKind.DISK for resource in found.values()):
        return
    where = environment.at("resources")
    if pool is not None:  # else the rule of every environment refuses it
        environment.report.note(where, "no disk is named: all of the engine's disk is offered.")
        found[ResourceKind.DISK.value] = _whole(ResourceKind.DISK, environment)


def _whole(kind: ResourceKind, environment: Reading) -> WantedResource:
    return WantedResource(kind.value, kind.value, None, 0, None, environment.at("resources"))


def _resource(entry: Entry, name: str) -> WantedResource:
    devices = read_devices(entry.at("init"), entry)
    kind = _kind(entry, name, bool(devices))
    read = "mebibytes" if kind in (ResourceKind.RAM, ResourceKind.DISK) else "whole"
    least, most, total = (getattr(entry.at(key), read)(key) for key in ("min", "max", "total"))
    for part in entry.parts:
        part.value("constraints")  # the pool's are read, though the environment may have its own
        for key in DEVICE_ONLY if kind != ResourceKind.DEVICE else ("kind",):
            part.drop(key, "it says nothing that is kept here.")
    sharing = entry.at("sharing").text("sharing")
    if kind == ResourceKind.DEVICE:
        total = _device_total(entry, total, len(devices))
    elif kind == ResourceKind.COUNTER and "total" not in entry.at("total"):
        entry.own.report.refuse(entry.at("total").at("total"), "Found no total; a counter needs one.")
    return WantedResource(
        slug=slug_at(entry.own, "id", name),
        kind=kind,
        total=total,
        min=least or 0,
        max=most,
        path=entry.own.path,
        sharing=sharing or usual_sharing(kind),
        devices=devices if kind == ResourceKind.DEVICE else (),
    )


def _device_total(entry: Entry, total: int | None, count: int) -> int:
    where = entry.at("total")
    if not count:
        where.report.refuse(
            entry.at("init").at("init"),
            "Names no device; write its UUID in init.deviceRequests.DeviceIDs (nvidia-smi -L lists them).",
        )
    return count if total is None else total


def _kind(entry: Entry, name: str, has_devices: bool) -> str:
    """From `type`; from the id or the devices where it is missing. What contradicts is refused."""
    reading = entry.at("type")
    told = reading.text("type").lower()
    known = {"gpu": ResourceKind.DEVICE.value, **{kind.value: kind.value for kind in PHYSICAL}}
    kind = known.get(told, ResourceKind.COUNTER.value if told else "")
    implied = name if name in PHYSICAL else ResourceKind.DEVICE.value if has_devices else ""
    if kind and implied and kind != implied:
        what = f"the id {name}" if name in PHYSICAL else "its device ids"
        reading.report.refuse(reading.at("type"), OF_ANOTHER_KIND.format(shown(told), what))
    if not kind and not implied:
        kind = ResourceKind.DEVICE.value if name.lower().startswith("gpu") else ResourceKind.COUNTER.value
    if ResourceKind.COUNTER in (kind, implied) and told != ResourceKind.COUNTER:
        reading.report.note(entry.own.path, f"{shown(name)} is no cpu, ram, disk or gpu: kept as a counter.")
    return kind or implied


def _cores(entry: Entry, environment: Reading, resource: WantedResource) -> WantedCores:
    """Named cores decide; a total beside them is only noted, unless both stand in one resource."""
    listed = _list_of_cores(entry)
    named = _named_cores(environment)
    if named is not None:
        if resource.total is not None and resource.total != len(named.named or ()):
            where = entry.at("total")
            where.report.note(
                where.at("total"),
                f"{resource.total} cores, but {len(named.named or ())} are named: those count.",
            )
        return named
    where = entry.at("total")
    if listed is not None and "total" not in entry.own:
        return WantedCores(entry.at("cpuList").at("cpuList"), named=listed)
    return WantedCores(where.at("total"), total=resource.total, among=listed)


def _list_of_cores(entry: Entry) -> tuple[int, ...] | None:
    reading = entry.at("cpuList")
    text = reading.text("cpuList")
    if not text:
        return None
    if "total" in reading:
        reading.report.refuse(reading.path, "cpu: total and cpuList exclude each other; keep one.")
    starts = [int(digits[0]) for part in text.split(",") if (digits := re.match(r"\s*(\d{1,5})", part))]
    if starts != sorted(starts):
        reading.report.refuse(
            reading.at("cpuList"), f"Found {shown(text)}; cores must ascend and not overlap, as in 0-1,3."
        )
        return None
    return _checked(reading, "cpuList", text)


def _named_cores(environment: Reading) -> WantedCores | None:
    value = environment.value("cpuCores")
    if value is None:
        return None
    named = _checked(environment, "cpuCores", value)
    if named == ():
        environment.report.refuse(environment.at("cpuCores"), "Names no core; name some, or leave it out.")
    return WantedCores(environment.at("cpuCores"), named=named or ())


def _checked(reading: Reading, key: str, value: Any) -> tuple[int, ...] | None:
    try:
        if isinstance(value, str):
            return tuple(parse_cores(value))
        if not isinstance(value, Sequence):
            raise ValidationError(f"Found {shown(value)}; a list of cores belongs here.")
        return tuple(unique_cores(value))
    except ValidationError as error:
        reading.report.refuse(reading.at(key), " ".join(error.messages))
        return None
