"""What an import does, or would do, in lines that people read."""

from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Change:
    """One engine or environment, what is done with it, and each value that changes."""

    what: str
    name: str
    details: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"{self.what:<10} {self.name}"
        yield from (f"{'':<10}   {detail}" for detail in self.details)


@dataclass(slots=True)
class Plan:
    """All changes in the order of the file, and what should be known: dropped values, unknown keys, warnings."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def changes_anything(self) -> bool:
        return any(change.what not in (KEPT, LEFT) for change in self.changes)

    def lines(self) -> Iterator[str]:
        """The plan as text."""
        for change in self.changes:
            yield from change.lines()
        yield from (f"note       {note}" for note in self.notes)
        if not self.changes_anything:
            yield "nothing changes"


def compared(name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> Change:
    """What became of an environment or engine, from its exported form before (None = it was not there) and after."""
    new = dict(_flat(after))
    if before is None:
        return Change(CREATED, name, tuple(f"{path}: {value}" for path, value in new.items()))
    old = dict(_flat(before))
    details = [
        f"{path}: {old.get(path, 'nothing')} → {new.get(path, 'nothing')}"
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]
    return Change(CHANGED if details else KEPT, name, tuple(details))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of every value; entries of a list go by their id where they have one."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("id", "Capabilities"):
                yield from _flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for position, item in enumerate(value):
            key = item.get("id") or item.get("feeToken") if isinstance(item, dict) else None
            yield from _flat(item, f"{path}[{key or position}]")
    elif isinstance(value, list):
        yield path, ", ".join(str(item) for item in value)
    else:
        yield path, f"{value:f}" if isinstance(value, Decimal) else str(value)
