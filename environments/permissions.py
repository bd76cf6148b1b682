"""Who may import and export, at every door: whoever may do the same by hand, kind of row by kind of row.

The kinds are those that have rows of their own in the admin; what stands within such a row counts as a change of it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model, QuerySet

from compute_site.core.errors import NotPermitted
from environments.models import (
    AccessRule,
    Constraint,
    Core,
    Device,
    DeviceInit,
    Engine,
    Environment,
    FreeResource,
    FreeTier,
    Price,
    PriceList,
    Resource,
    ResourceDevice,
)

Rows = Mapping[Any, tuple[Any, ...]]  # values by key
KINDS: tuple[type[Model], ...] = (
    *(Engine, Environment, Resource, Constraint, FreeTier, PriceList, AccessRule),
    *(Device, DeviceInit),
)
PARTS: dict[
    type[Model], tuple[type[Model], str]
] = {  # what stands within a row of which kind; the column with its key
    Core: (Environment, "environment_id"),
    ResourceDevice: (Resource, "resource_id"),
    FreeResource: (Resource, "resource_id"),
    Price: (PriceList, "price_list_id"),
}
THROUGH: dict[type[Model], str] = {Environment: "", FreeResource: "free_tier__environment__"}
THROUGH |= {Price: "price_list__environment__"}  # to the environment, where it is not a column
GATE = ("engine", "environment")


def may_import(user: Any) -> bool:
    """Whoever may add and change engines and environments; which kinds of rows an import changes shows then."""
    names = [f"environments.{action}_{model}" for action in ("add", "change") for model in GATE]
    return bool(user.has_perms(names))


def may_export(user: Any) -> bool:
    """Whoever may see all that an export tells."""
    return bool(user.has_perms([_permission("view", kind) for kind in KINDS]))


@dataclass(slots=True)
class Changes:
    """What is done to the rows of some engines, from now until it is asked. Needs the locks of their hosts.

    `made`: those of the engines that were made just before.
    """

    engines: Collection[int]
    hosts: Collection[int]
    made: Collection[int] = ()
    before: dict[type[Model], Rows] = field(init=False)

    def __post_init__(self) -> None:
        self.before = self._read()
        engines = self.before[Engine].items()
        self.before[Engine] = {key: values for key, values in engines if key not in self.made}

    def needed(self) -> list[str]:
        """The permissions that this takes by hand, in order."""
        after = self._read()
        found: set[str] = set()
        whole: dict[type[Model], set[str]] = {}  # keys of rows that are new or gone, with all that is in them
        for kind in KINDS:
            old, new = self.before[kind], after[kind]
            whole[kind] = {str(key) for key in set(old) ^ set(new)}
            found |= {_permission("add", kind)} if set(new) - set(old) else set()
            found |= {_permission("delete", kind)} if set(old) - set(new) else set()
            if any(new[key] != old[key] for key in set(old) & set(new)):
                found.add(_permission("change", kind))
        for part, (kind, _) in PARTS.items():
            rows = set(self.before[part].items()) ^ set(after[part].items())
            if {values[0] for _, values in rows} - whole[kind]:
                found.add(_permission("change", kind))
        return sorted(found)

    def check(self, user: Any) -> None:
        """Raises NotPermitted with every permission that the user lacks."""
        missing = [name for name in self.needed() if not user.has_perm(name)]
        if missing:
            text = f"This takes permissions that you do not have: {', '.join(missing)}. Ask whoever administers this"
            raise NotPermitted(f"{text} site for them, or leave out what needs them. Nothing was written.")

    def _read(self) -> dict[type[Model], Rows]:
        return {kind: _rows(kind, self._scope(kind)) for kind in (*KINDS, *PARTS)}

    def _scope(self, kind: type[Model]) -> QuerySet[Any]:
        """Rows of the engines, but for what their switch makes; devices of the hosts."""
        rows = kind._default_manager.all()
        if kind is Engine:
            return rows.filter(pk__in=self.engines)
        if kind in (Device, DeviceInit):
            return rows.filter(**{"host__in" if kind is Device else "device__host__in": self.hosts})
        path = THROUGH.get(kind, "environment__")
        return rows.filter(**{f"{path}engine__in": self.engines, f"{path}benchmark": False})


def _rows(kind: type[Model], rows: QuerySet[Any]) -> Rows:
    """What operators edit; the rest follows, or is a worker's to write at any time."""
    own = [one.attname for one in kind._meta.concrete_fields if one.editable]
    names = [PARTS[kind][1], *own] if kind in PARTS else own
    key = kind._meta.pk
    assert key is not None
    return {values[0]: tuple(map(str, values[1:])) for values in rows.values_list(key.attname, *names)}


def _permission(action: str, kind: type[Model]) -> str:
    return f"{kind._meta.app_label}.{action}_{kind._meta.model_name}"
