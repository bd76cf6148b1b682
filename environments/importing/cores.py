"""Which cores each environment of a file gets, all environments of a host looked at together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from django.core.exceptions import ValidationError

from environments import core_words
from environments.importing.wanted import WantedCores


@dataclass(frozen=True, slots=True)
class HostCores:
    """The cores of a host: who has each (an environment's key, None = nobody), and which a job holds."""

    name: str
    owner: Mapping[int, int | None]
    held: Collection[int] = ()


@dataclass(slots=True)
class Asking:
    """An environment that is to get cores. `key` None = it is new. `given` is the answer, ascending."""

    key: int | None
    wanted: WantedCores
    given: list[int] = field(default_factory=list)


def share_cores(host: HostCores, askings: Collection[Asking], strangers: Mapping[int, str]) -> None:
    """Fill in `given`: named cores first, then numbers (own cores before the lowest free), then "all that are left".

    `strangers` names the environments that keep their cores. Whoever asks the same again gets the same. Raises
    ValidationError {path: messages}.
    """
    free = {index for index, key in host.owner.items() if key not in strangers}
    errors: dict[str, list[str]] = {}
    for asking in askings:
        if asking.wanted.named is not None:
            _give_named(host, asking, free, strangers, errors)
    numbers = [
        asking for asking in askings if asking.wanted.named is None and asking.wanted.total is not None
    ]
    for asking in numbers:
        _take(asking, _own(host, asking, free)[: asking.wanted.total], free)
    for asking in numbers:
        total = asking.wanted.total or 0
        usable = sorted(_among(asking, free), key=lambda index: (host.owner[index] is not None, index))
        if total < 1 or total > len(usable) + len(asking.given):
            errors[asking.wanted.path] = [_too_few(host, asking, len(usable) + len(asking.given))]
            continue
        _take(asking, usable[: total - len(asking.given)], free)
    for asking in askings:
        if asking.wanted.named is None and asking.wanted.total is None:
            left = _among(asking, free)
            if not left:
                errors[asking.wanted.path] = [core_words.none_left(host.name)]
            _take(asking, left, free)
    if errors:
        raise ValidationError(errors)


def _give_named(
    host: HostCores,
    asking: Asking,
    free: set[int],
    strangers: Mapping[int, str],
    errors: dict[str, list[str]],
) -> None:
    named = asking.wanted.named or ()
    missing = [index for index in named if index not in host.owner]
    found = [core_words.not_there(host.name, missing, host.owner)] if missing else []
    for index in named:
        owner = host.owner.get(index)
        if owner in strangers and owner is not None:
            found.append(core_words.taken(index, strangers[owner]))
        elif index in host.owner and index not in free:
            found.append(
                f"Core {index} is named by another environment of this file too; a core belongs to one."
            )
    if found:
        errors[asking.wanted.path] = found
    _take(asking, [index for index in named if index in free], free)


def _own(host: HostCores, asking: Asking, free: set[int]) -> list[int]:
    """Cores that it has already: those that its jobs hold first."""
    own = [
        index for index in _among(asking, free) if asking.key is not None and host.owner[index] == asking.key
    ]
    return sorted(own, key=lambda index: (index not in host.held, index))


def _among(asking: Asking, free: set[int]) -> list[int]:
    among = asking.wanted.among
    return sorted(free if among is None else free & set(among))


def _take(asking: Asking, cores: Collection[int], free: set[int]) -> None:
    free.difference_update(cores)
    asking.given = sorted([*asking.given, *cores])


def _too_few(host: HostCores, asking: Asking, usable: int) -> str:
    if not asking.wanted.total:
        return core_words.NOT_ONE
    where = "" if asking.wanted.among is None else " that the list names"
    return core_words.too_few(asking.wanted.total, usable, host.name, len(host.owner), where)
