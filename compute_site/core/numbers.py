"""What is said of a value that is no number, or none that may be: the same words at every door."""

from decimal import Decimal
from typing import Any


def whole_error(value: object, least: int | None = 0, most: int | None = None, of: str = "") -> str:
    """What is wrong with `value` as a whole number from `least` to `most` (None = no bound); empty when nothing is.

    Text that looks like a number is none, nor are booleans and fractions. `of` says what is counted, as " of MiB".
    """
    if type(value) is not int or (least is not None and value < least):
        return f"Found {shown(value)}; enter a whole number{of}{_from(least)}."
    if most is not None and value > most:
        return f"Found {shown(value)}; enter at most {most}."
    return ""


def decimal_error(value: object, least: int | None, digits: int, places: int) -> str:
    """The same for a decimal number (int or Decimal) of so many digits, `places` of them behind the point."""
    if type(value) not in (int, Decimal) or not (number := Decimal(value)).is_finite():  # type: ignore[arg-type]
        return f"Found {shown(value)}; enter a number{_from(least)}."
    if least is not None and number < least:
        return f"Found {shown(value)}; enter a number{_from(least)}."
    _, figures, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # it is finite
    trailing = len(figures) - len("".join(map(str, figures)).rstrip("0"))
    if number and -(exponent + trailing) > places:
        return f"Found {shown(value)}; enter at most {places} decimals."
    if number and len(figures) + exponent > digits - places:
        return f"Found {shown(value)}; enter at most {digits - places} digits before the point."
    return ""


def shown(value: Any) -> str:
    """A value as it is quoted in a message: short, in the words of JSON."""
    words = {True: "true", False: "false"} if isinstance(value, bool) else {}
    text = f"“{value}”" if isinstance(value, str) else words.get(value, "") if words else f"{value}"
    if isinstance(value, dict | list):
        text = "an object" if isinstance(value, dict) else "a list"
    elif value is None:
        text = "null"
    return text if len(text) <= 80 else text[:79] + "…"


def _from(least: int | None) -> str:
    return "" if least is None else f", {least} or more"
