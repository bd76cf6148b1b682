"""Who may import and export, in the admin and by REST: both are about engines and environments as a whole."""

from typing import Any

MODELS = ("engine", "environment")


def may_import(user: Any) -> bool:
    """Whoever may add and change engines and environments."""
    return _may(user, "add", "change")


def may_export(user: Any) -> bool:
    """Whoever may see them."""
    return _may(user, "view")


def _may(user: Any, *actions: str) -> bool:
    return bool(user.has_perms([f"environments.{action}_{model}" for action in actions for model in MODELS]))
