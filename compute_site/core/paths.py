"""Paths as text, `/` between their parts. Pure."""

from collections.abc import Iterable


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Whether `path` is one of `roots`, or lies below one of them."""
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def without_any(roots: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Those of `roots` that are none of `paths`, and that no path lies below."""
    there = list(paths)
    return [root for root in roots if not any(is_below(path, [root]) for path in there)]
