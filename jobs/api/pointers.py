"""From the path of a value in a configuration to the JSON pointer of the request that had it."""

import re
from typing import Any

ROOT = "configuration"
INDEX = re.compile(r"\[(\d+)\]")
NAME = re.compile(r"[^.\[]+")


def pointer_of(path: str, configuration: Any) -> str:
    """`[0].environments[1].id` → `/configuration/0/environments/1/id`.

    One engine that stands there without a list has no index. A name may contain dots and brackets: the keys that are
    there decide. A path that does not begin with an engine is about the whole.
    """
    steps, value, rest = [ROOT], configuration, path
    if not INDEX.match(rest):
        return f"/{ROOT}"
    if isinstance(configuration, dict):
        rest = rest.removeprefix("[0]")
    while rest:
        step, rest = _step(value, rest)
        value = _inside(value, step)
        steps.append(step.replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{step}" for step in steps)


def _step(value: Any, rest: str) -> tuple[str, str]:
    """The next key or index, and what follows it."""
    if index := INDEX.match(rest):
        return index[1], rest[index.end() :]
    rest = rest.removeprefix(".")
    keys = value if isinstance(value, dict) else ()
    there = [key for key in keys if rest.startswith(key) and rest[len(key) :][:1] in ("", ".", "[")]
    first = NAME.match(rest)
    name = max(there, key=len, default=first[0] if first else rest)
    return name, rest[len(name) :]


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return None
