"""What is said of cores that an environment cannot have: the same words for one that is edited and for a whole file."""

from collections.abc import Iterable

from environments.cpuset import format_cores

NOT_ONE = "Found 0; an environment needs at least one core."


def not_there(host: object, missing: Iterable[int], there: Iterable[int]) -> str:
    """The host has no such cores."""
    return f"{host} has no core {format_cores(missing)}; it has {format_cores(there) or 'none'}."


def taken(index: int, owner: object) -> str:
    """Another environment has the core."""
    return f"Core {index} belongs to {owner}; take it out there first."


def too_few(asked: int, usable: int, host: object, count: int, of: str = "") -> str:
    """Of the host's `count` cores (`of`: which of them were to be looked at) only `usable` are free."""
    return (
        f"{asked} {'core is' if asked == 1 else 'cores are'} asked, {usable} of the {count} of {host}{of} are free;"
        " lower the number or take cores from another environment."
    )


def none_left(host: object) -> str:
    """All cores that are left were asked for, and there is none."""
    return f"No core of {host} is left; take some from another environment."
