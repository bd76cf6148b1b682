"""What a host and an engine report about themselves, written into their rows. The Docker side passes the facts in."""

from collections.abc import Mapping
from typing import Any, Protocol

from django.core.exceptions import ValidationError
from django.db import transaction

from compute_site.core.db import database_now, lock_one
from environments.cpuset import format_cores
from environments.models import Core, Engine, Host, Reservation, ReservedCore
from environments.reservations import lock_host
from environments.rules import host_environments, overcommitted, size_warnings


class HostFacts(Protocol):
    """The size of a machine: cores, MiB of memory, MiB of the engine's data disk (None = not to be seen from here)."""

    @property
    def cpu_count(self) -> int: ...
    @property
    def memory_mib(self) -> int: ...
    @property
    def disk_mib(self) -> int | None: ...
    @property
    def architecture(self) -> str: ...
    @property
    def os(self) -> str: ...


class EngineFacts(Protocol):
    """What identifies an engine."""

    @property
    def engine_id(self) -> str: ...


class ProbeFacts(Protocol):
    """How the engine's workspaces work, found by experiment."""

    @property
    def workspace_mode(self) -> str: ...
    @property
    def disk_mode(self) -> str: ...


def record_host(host: Host, facts: HostFacts, asked: Engine | None = None) -> list[str]:
    """Write the detected size of the host and a row for each of its cores; returns warnings. Its version grows when
    anything is different from before.

    `asked` is the engine that the facts are from. Where the host's engines keep their data on several disks, the
    smallest counts, whichever engine is asked: what is promised of it fits on each. A size entered by hand stays while
    the machine has at least as much, and so does a disk that cannot be seen. Raises ValidationError, and writes
    nothing, when a size is missing or zero (says what to enter), or when a core that is owned or held would disappear.
    """
    disks = _disks(host, facts, asked)
    disk = min(disks.values(), default=None)
    found = {
        "cpu_count": facts.cpu_count,
        "memory_mib": facts.memory_mib,
        "disk_mib": disk or host.disk_mib,
    }
    missing = {
        field: f"Nothing was detected (found {value!r}); enter {field} of host {host} by hand."
        for field, value in found.items()
        if type(value) is not int or value <= 0
    }
    if missing:
        raise ValidationError(missing)
    with transaction.atomic():
        fresh = lock_host(host.pk)
        told = _several(host, disks) + _write_sizes(fresh, found)
        record_cores(fresh, fresh.cpu_count)
        for field, value in {**found, "disk_mib": disk}.items():
            setattr(fresh, f"detected_{field}", value)
        fresh.architecture, fresh.operating_system = facts.architecture, facts.os
        fresh.full_clean()
        fresh.detected_at = database_now()
        names = [*found, *(f"detected_{field}" for field in found), "architecture", "operating_system"]
        if any(getattr(fresh, name) != getattr(host, name) for name in names):
            fresh.version += 1
        fresh.save(update_fields=[*names, "detected_at", "version"])
    host.refresh_from_db()
    return [*told, *size_warnings(host_environments(host)), *overcommitted(host)]


def _disks(host: Host, facts: HostFacts, asked: Engine | None) -> dict[str, int]:
    """MiB of the data disk of each engine of the host, by name: as `asked` says now, as the others, or it, said last."""
    rows = Engine.objects.filter(host=host).values_list("name", "facts")
    found = {name: known.get("disk_mib") for name, known in rows}
    if facts.disk_mib:
        found[asked.name if asked else ""] = facts.disk_mib
    return {name: size for name, size in found.items() if size}


def _several(host: Host, disks: Mapping[str, int]) -> list[str]:
    if len(set(disks.values())) < 2:
        return []
    told = ", ".join(f"{size} MiB of {name}" for name, size in sorted(disks.items()))
    return [
        f"disk_mib of host {host}: its engines keep their data on several disks ({told}); the smallest counts."
    ]


def _write_sizes(host: Host, found: Mapping[str, int]) -> list[str]:
    told = []
    for field, value in found.items():
        stands = getattr(host, field)
        if _by_hand(host, field) and stands < value:
            told.append(
                f"{field} of host {host} was entered by hand and stays {stands}; {value} were detected. Enter that number"
                " to use all of it."
            )
        else:
            setattr(host, field, value)
    return told


def _by_hand(host: Host, field: str) -> bool:
    """Whether the size is another than the last detection wrote; 0 is none."""
    return getattr(host, field) not in (0, getattr(host, f"detected_{field}"))


def _check_mode(engine: Engine, probe: ProbeFacts) -> None:
    """A workspace is read the way it was made. Needs the host's lock: nothing is reserved meanwhile."""
    was, found = (engine.workspace_mode, engine.disk_mode), (probe.workspace_mode, probe.disk_mode)
    if was == found or not was[0]:
        return
    if Reservation.objects.filter(environment__engine=engine, released_at=None).exists():
        raise ValidationError(
            {
                "workspace_mode": f"Jobs run with the workspace {was[0]}, disk {was[1]}, and now it would be {found[0]}, disk"
                f" {found[1]}. Start as before, drain the engine, wait until none of its jobs is running, and try again."
            }
        )


def record_cores(host: Host, count: int) -> None:
    """Make the rows of cores 0 … count-1 and remove the unused beyond. Needs the host's lock.

    Raises ValidationError when a core that is owned or held would disappear.
    """
    beyond = Core.objects.filter(host=host, index__gte=count)
    held = ReservedCore.objects.filter(core__in=beyond, released_at=None).values_list(
        "core__index", flat=True
    )
    owned = beyond.filter(environment__isnull=False).values_list("index", flat=True)
    stuck = sorted({*held, *owned})
    if stuck:
        raise ValidationError(
            {
                "cpu_count": f"It cannot become {count}: cores {format_cores(stuck)} belong to an environment or a running"
                " job; take them out of the environment first."
            }
        )
    beyond.filter(reserved=None).delete()
    there = set(Core.objects.filter(host=host).values_list("index", flat=True))
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(count) if index not in there)


def record_engine(
    engine: Engine, facts: EngineFacts, probe: ProbeFacts | None, details: Mapping[str, Any]
) -> bool:
    """Write what the engine says of itself; `details` is kept as it is (JSON). It answers, so it is not unreachable.

    Returns whether it is another engine than before (its id changed): what ran on the old one is not known to be gone.
    Raises ValidationError, and writes nothing, when workspaces of running jobs are of another mode than the probe's.
    """
    with transaction.atomic():
        if engine.host_id is not None:
            lock_host(engine.host_id)
        fresh = lock_one(Engine.objects.filter(pk=engine.pk))
        if probe is not None:
            _check_mode(fresh, probe)
        changed = bool(fresh.docker_id) and fresh.docker_id != facts.engine_id
        values: dict[str, Any] = {
            "docker_id": facts.engine_id,
            "facts": dict(details),
            "unreachable_since": None,
        }
        if probe is not None:
            values |= {"workspace_mode": probe.workspace_mode, "disk_mode": probe.disk_mode}
        Engine.objects.filter(pk=engine.pk).update(probed_at=database_now(), **values)
    engine.refresh_from_db()
    return changed
