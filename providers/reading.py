"""Reading what a provider sent, as a stranger's: each value is what it must be, or the answer is malformed."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from providers.errors import MalformedResponse

T = TypeVar("T")


def rows(value: Any, what: str) -> list[dict[str, Any]]:
    """A list of objects. An empty body, an error told as 200 or one odd row is malformed, not an empty list."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise MalformedResponse(f"{what}: not a list of objects")
    return value


def text(row: dict[str, Any], key: str) -> str:
    """A text that must be there and not be empty."""
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedResponse(f"{key} is missing or no text")
    return value


def mapping(value: Any, what: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise MalformedResponse(f"{what}: not an object")
    return value


def price(value: Any) -> Decimal | None:
    """A finite price of at least zero; None for what is no price."""
    try:
        found = Decimal(str(value)) if type(value) in (int, float, str) else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() and found >= 0 else None


def count(value: Any) -> int | None:
    """A whole number above zero, also as text; None for anything else."""
    digits = str(value) if type(value) in (int, str) else ""
    return int(digits) if digits.isascii() and digits.isdigit() and int(digits[:9]) > 0 else None


def moment(value: Any) -> datetime | None:
    """A time with zone (UTC when none is told); None for what is no time."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def readable(read: Callable[[dict[str, Any]], T | None], found: Iterable[dict[str, Any]]) -> list[T]:
    """What can be read of a listing of *offers*: one that cannot be read is none."""
    offers = []
    for row in found:
        try:
            offer = read(row)
        except MalformedResponse:
            continue
        if offer is not None:
            offers.append(offer)
    return offers
