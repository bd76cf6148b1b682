"""Constraints between resources as a file writes them, with each resource, made rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from compute_site.core.numbers import shown
from environments.bounds import SIZED
from environments.importing.reading import Reading
from environments.importing.wanted import WantedConstraint, WantedEnvironment, WantedResource
from environments.models import Constraint, Environment, Resource, ResourceKind, constraint_path
from environments.models.constraint import not_one_target
from environments.setup import save_constraint, unknown_resource

KINDS = {"gpu": ResourceKind.DEVICE.value, **{kind.value: kind.value for kind in ResourceKind}}
VALUES = ("aggregate", "min", "max")
Types = Mapping[str, str]  # by slug, the type that the file gives a resource


def read_constraints(
    rows: Iterable[tuple[Reading, WantedResource]], resources: Mapping[str, WantedResource], types: Types
) -> list[WantedConstraint]:
    """From each constraint that stands with a resource; `resources` go by the ids of the file.

    Memory and disk become MiB. Two on the same target become one, as narrow as both.
    """
    found: dict[str, WantedConstraint] = {}
    for row, resource in rows:
        wanted = _read(row, resource, resources, types)
        if wanted is None:
            continue
        earlier = found.get(wanted.key)
        if earlier is not None and earlier.aggregate != wanted.aggregate:
            row.report.refuse(
                row.path, "There is one on the same target that adds up, or does not; keep one of them."
            )
        elif earlier is not None:
            highest = [most for most in (earlier.max, wanted.max) if most is not None]
            wanted = replace(earlier, min=max(earlier.min, wanted.min), max=min(highest, default=None))
        found[wanted.key] = wanted
    return list(found.values())


def _read(
    row: Reading, resource: WantedResource, resources: Mapping[str, WantedResource], types: Types
) -> WantedConstraint | None:
    name, told = row.text("id"), row.text("type").lower()
    per_unit = row.flag("perUnit") if "perUnit" in row else True
    aggregate = row.flag("aggregate")
    target = resources.get(name)
    read = row.mebibytes if (target.kind if target else told) in SIZED else row.whole
    least, most = read("min"), read("max")
    if bool(name) == bool(told):
        row.report.refuse(row.at("id"), not_one_target(both=bool(name)))
    elif name and target is None:
        row.report.refuse(row.at("id"), unknown_resource(name, resources))
    elif told and not _of_type(told, resources, types):
        if least:
            row.report.refuse(row.at("type"), f"The environment has no resource of type {shown(told)}.")
        else:
            row.report.note(row.path, f"dropped: the environment has no resource of type {shown(told)}.")
    elif not least and most is None:
        row.report.note(row.path, "dropped: it has neither a min nor a max.")
    else:
        slug, kind = (target.slug, "") if target else _target(row, told, resources, types)
        return WantedConstraint(
            row.path,
            resource.slug,
            slug,
            kind,
            per_unit=per_unit,
            aggregate=aggregate,
            min=least or 0,
            max=most,
        )
    return None


def _of_type(told: str, resources: Mapping[str, WantedResource], types: Types) -> list[WantedResource]:
    """Resources of a type: by our kind where it is one, else by the word that the file has."""
    if told in KINDS:
        return [one for one in resources.values() if one.kind == KINDS[told]]
    return [one for one in resources.values() if types.get(one.slug) == told]


def _target(
    row: Reading, told: str, resources: Mapping[str, WantedResource], types: Types
) -> tuple[str, str]:
    """Slug, or kind. A type that is no kind here stands for its only resource, or for all counters."""
    if told in KINDS:
        return "", KINDS[told]
    members = _of_type(told, resources, types)
    counters = [one for one in resources.values() if one.kind == ResourceKind.COUNTER]
    if len(members) > 1 and len(members) != len(counters):
        text = f"{shown(told)} is some of the counters here: name each of them by id."
        row.report.refuse(row.at("type"), text)
    return (members[0].slug, "") if len(members) == 1 else ("", ResourceKind.COUNTER.value)


def drop_constraints(environment: Environment, wanted: WantedEnvironment) -> None:
    """Remove the rows that the file does not have: before resources go that they name."""
    kept = {one.key for one in wanted.constraints}
    for key, row in _there(environment).items():
        if key not in kept:
            row.delete()


def write_constraints(
    environment: Environment, resources: Mapping[str, Resource], wanted: WantedEnvironment
) -> None:
    """Write the rows that are new or differ. Raises ValidationError with our paths."""
    there = _there(environment)
    for one in wanted.constraints:
        row = there.get(one.key)
        if row is None or any(getattr(row, name) != getattr(one, name) for name in VALUES):
            save_constraint(
                row or Constraint(environment=environment),
                resources,
                resource=one.resource,
                target=one.target,
                target_kind=one.target_kind,
                per_unit=one.per_unit,
                **{name: getattr(one, name) for name in VALUES},
            )


def _there(environment: Environment) -> dict[str, Constraint]:
    rows = Constraint.objects.filter(environment=environment).select_related("resource", "target")
    return {
        constraint_path(
            row.resource.slug, row.target.slug if row.target else row.target_kind, row.per_unit
        ): row
        for row in rows
    }
