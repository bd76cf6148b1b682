"""What an import does, or would do: in lines that people read, and part by part for other doors."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

CREATED, CHANGED, KEPT, RETIRED, LEFT, ACTIVATED = (
    "created",
    "changed",
    "kept",
    "retired",
    "left alone",
    "activated",
)
TakeNote = Callable[[str, str], None]  # path in the configuration, message


@dataclass(frozen=True, slots=True)
class Note:
    """What should be known about the value at `path` of the configuration."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Value:
    """One value in the exported form, as text; None where there is, or was, none."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """One engine or environment (`kind`), what is done with it, why, and each value that changes.

    `path` is where the configuration speaks of it, or of its engine where it does not.
    """

    what: str
    kind: str
    name: str
    path: str
    values: tuple[Value, ...] = ()
    why: str = ""

    @property
    def details(self) -> list[str]:
        """The reason and the values as text."""
        values = [
            f"{value.path}: {value.after}"
            if self.what == CREATED
            else f"{value.path}: {_told(value.before)} → {_told(value.after)}"
            for value in self.values
        ]
        return [self.why, *values] if self.why else values

    def lines(self) -> Iterator[str]:
        yield f"{self.what:<10} {self.kind} {self.name}"
        yield from (f"{'':<10}   {detail}" for detail in self.details)


@dataclass(slots=True)
class Plan:
    """All changes in the order of the file, and what should be known: dropped values, unknown keys, warnings.

    `applied` tells whether it was written.
    """

    changes: list[Change] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    applied: bool = False

    @property
    def changes_anything(self) -> bool:
        return any(change.what not in (KEPT, LEFT) for change in self.changes)

    @property
    def fingerprint(self) -> str:
        """The same for two plans that read the same."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    def lines(self) -> Iterator[str]:
        """The plan as text."""
        for change in self.changes:
            yield from change.lines()
        yield from (f"note       {note}" for note in self.notes)
        if not self.changes_anything:
            yield "nothing changes"


def compared(kind: str, name: str, path: str, before: dict[str, Any] | None, after: dict[str, Any]) -> Change:
    """What became of an environment or engine, from its exported form before (None = it was not there) and after."""
    values = difference(before or {}, after)
    what = CREATED if before is None else CHANGED if values else KEPT
    return Change(what, kind, name, path, values)


def difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[Value, ...]:
    """Each value that differs between two exported forms."""
    old, new = dict(_flat(before)), dict(_flat(after))
    return tuple(
        Value(key, old.get(key), new.get(key))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    )


def _told(value: str | None) -> str:
    return "nothing" if value is None else value


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of every value; entries of a list go by their id where they have one."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("id", "Capabilities"):
                yield from _flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for position, item in enumerate(value):
            key = _key(item) if isinstance(item, dict) else ""
            yield from _flat(item, f"{path}[{key or position}]")
    elif isinstance(value, list):
        yield path, ", ".join(str(item) for item in value)
    else:
        yield path, f"{value:f}" if isinstance(value, Decimal) else str(value)


def _key(item: dict[str, Any]) -> str:
    """What an entry of a list is known by; a constraint by its target and how it counts. Empty = by its position."""
    target = (
        f"type {item['type']}"
        if "type" in item and "id" not in item
        else item.get("id") or item.get("feeToken")
    )
    return f"{target}, per job" if item.get("perUnit") is False else target or ""
