"""Core lists as people write them: "0-3,8"."""

import re
from collections.abc import Iterable

from django.core.exceptions import ValidationError

PART = re.compile(r"^(\d{1,5})(?:-(\d{1,5}))?$", re.ASCII)


def parse_cores(text: str) -> list[int]:
    """Core indexes of a list such as "0-3,8", ascending; an empty text is no core.

    Raises ValidationError when a part is no number or range, descends, or repeats a core.
    """
    cores: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = PART.match(part)
        if match is None:
            raise ValidationError(f"“{part}” is no core or range of cores; write for example 0-3,8.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValidationError(f"“{part}” runs backwards; write {last}-{first}.")
        cores.extend(range(first, last + 1))
    return unique_cores(cores)


def unique_cores(cores: Iterable[object]) -> list[int]:
    """The same indexes ascending. Raises ValidationError for what is no index and for a core named twice."""
    seen: set[int] = set()
    for core in cores:
        if type(core) is not int or core < 0:
            raise ValidationError(f"{core!r} is no core; cores are whole numbers from 0.")
        if core in seen:
            raise ValidationError(f"Core {core} is named twice.")
        seen.add(core)
    return sorted(seen)


def format_cores(cores: Iterable[int]) -> str:
    """The shortest text for these indexes: [0, 1, 2, 3, 8] is "0-3,8"."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
