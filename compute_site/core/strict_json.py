"""JSON as we accept it: bounded in size, depth and number of values, and free of what PostgreSQL cannot keep."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from django.core.exceptions import ValidationError

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 32
MAX_VALUES = 100_000
MAX_DIGITS = 64

# A string in one step (to the end of the text if it is not closed), or one character of structure.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)|[\[\]{},]', re.DOTALL)


class NotJSON(Exception):
    """The text is no JSON, or more of it than we read. The message says what and roughly where."""


class _Repeated(dict[str, Any]):
    """An object in which a key stood twice."""

    key = ""


def read_json(body: bytes, parse_float: Callable[[str], Any] = float) -> Any:
    """The value in `body`. Raises NotJSON for text that cannot be read at all, and ValidationError with pointers for
    values that must not be kept: NUL, lone surrogates, NaN and infinities, repeated keys. Linear in the body's size.
    `parse_float` makes numbers with a point or an exponent; Decimal keeps every digit of money.
    """
    if len(body) > MAX_BYTES:
        raise NotJSON(f"more than {MAX_BYTES} bytes")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise NotJSON(f"not UTF-8 at byte {error.start}") from None
    _check_structure(text)
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=parse_float)
    except ValueError as error:
        raise NotJSON(str(error)[:200]) from None
    except ArithmeticError:  # Decimal has an exponent of 18 digits at most
        raise NotJSON("a number with an exponent of more than 18 digits") from None
    if faults := dict(_faults(value)):
        raise ValidationError({path: [ValidationError(message)] for path, message in faults.items()})
    return value


def _check_structure(text: str) -> None:
    """Depth and number of values, before the parser builds anything. Few brackets and commas need no closer look."""
    if text.count("[") + text.count("{") <= MAX_DEPTH and text.count(",") <= MAX_VALUES:
        return
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text)):
        first = token[0][0]
        if first in "[{":
            depth += 1
        elif first in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise NotJSON(f"nested deeper than {MAX_DEPTH} at character {token.start()}")
        if count > 2 * MAX_VALUES:
            raise NotJSON(f"more than {MAX_VALUES} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = _Repeated(found)
    seen: set[str] = set()
    repeated.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return repeated


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotJSON(f"a number of {len(digits)} digits")
    return int(digits)


def _faults(root: Any) -> Iterator[tuple[str, str]]:
    """Path and fault of every value that must not be kept, at most a hundred; no recursion."""
    found = 0
    todo: list[tuple[str, Any]] = [("", root)]
    while todo and found < 100:
        path, value = todo.pop()
        fault = _fault(value)
        if fault:
            found += 1
            yield path, fault
        elif isinstance(value, dict):
            todo.extend((f"{path}/{_step(key)}" if path else _step(key), item) for key, item in value.items())
        elif isinstance(value, list):
            todo.extend((f"{path}/{i}" if path else str(i), item) for i, item in enumerate(value))


def _fault(value: Any) -> str:
    if isinstance(value, str):
        return _text_fault(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "Not a finite number."
    if isinstance(value, _Repeated):
        return f"The key {value.key[:100]!a} stands there twice."
    if isinstance(value, dict):
        return next((f"A key: {fault}" for key in value if (fault := _text_fault(key))), "")
    return ""


def _text_fault(text: str) -> str:
    if "\0" in text:
        return "Contains a NUL character."
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "Contains a lone surrogate, which is no character."
    return ""


def _step(key: str) -> str:
    return key[:100].replace("~", "~0").replace("/", "~1")
