"""The history of an environment: what every edit left behind, in the edit's own transaction (ADR 0008)."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from environments.exporting import as_json, export_environment
from environments.models import Door, Edit, Environment

REST = ("slug", "state", "configuration")  # what two edits are compared by


@dataclass(frozen=True, slots=True)
class Author:
    """Whose edit it is: a user name (empty = the site itself), through which door, and why.

    `user`: the one whose permissions an import needs; None = the site itself, which needs none.
    """

    by: str = ""
    door: str = Door.CODE
    comment: str = ""
    user: Any = None


SITE = Author()


def find(environment: Environment) -> None:
    """Before an edit: keep what is there, if the history does not have it yet (it is older, or was changed past it).

    Needs the environment's lock. Afterwards the last row of the history is what the environment is.
    """
    _keep(environment, Author(door=Door.FOUND))


def record(environment: Environment, author: Author) -> Edit | None:
    """After an edit: keep what it left behind. None, and no row, where nothing changed and nothing was said.

    Needs the environment's lock. `find` came before the edit, unless it made the environment.
    """
    return _keep(environment, author)


def values(edit: Edit) -> dict[str, Any]:
    """Everything that the environment was after this edit, in the form of an export, its slug and state with it."""
    return {"slug": edit.slug, "state": edit.state, **configuration(edit)}


def configuration(edit: Edit) -> dict[str, Any]:
    """The same as an import reads it. Numbers with a point are Decimal."""
    return dict(json.loads(edit.configuration, parse_float=Decimal))


def _keep(environment: Environment, author: Author) -> Edit | None:
    fresh = Environment.objects.select_related("engine").get(pk=environment.pk)
    left = Edit(
        environment=fresh,
        by=author.by,
        door=author.door,
        comment=author.comment.strip(),
        slug=fresh.slug,
        state=fresh.state,
        configuration=as_json(export_environment(fresh)),
    )
    last = Edit.objects.filter(environment=fresh).first()
    same = last is not None and all(getattr(last, name) == getattr(left, name) for name in REST)
    if same and not left.comment:
        return None
    left.save(force_insert=True)
    return left
