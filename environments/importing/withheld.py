"""What a difference does not tell everybody: values of rows that the reader may not look at by hand either."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from environments.importing.plan import Plan, Value

# Where in an exported environment, and which rows that are.
GUARDED = (
    (re.compile(r"resources\[.*?\]\.init\.devices\b"), ("device", "deviceinit")),
    (re.compile(r"(free\.)?access\b"), ("accessrule",)),
)
WITHHELD = "(not shown to you)"


def told_to(user: Any, values: Iterable[Value]) -> tuple[Value, ...]:
    """The values, but of each place that `user` may not look at one line: that something of it is another."""
    places = [place for place, models in GUARDED if not all(_may_look(user, model) for model in models)]
    found: dict[Value, None] = {}
    for value in values:
        at = next((match for place in places if (match := place.match(value.path))), None)
        found[value if at is None else Value(at[0], WITHHELD, WITHHELD)] = None
    return tuple(found)


def _may_look(user: Any, model: str) -> bool:
    """As in the admin, whoever may change a row may look at it."""
    return any(user.has_perm(f"environments.{action}_{model}") for action in ("view", "change"))


def plan_told_to(user: Any, plan: Plan) -> None:
    """The same in every change of a plan; whatever else reads alike then is one plan to this user."""
    plan.changes = [replace(change, values=told_to(user, change.values)) for change in plan.changes]
