"""Reads a job's `result.json`: hostile text that is to become a value in the database.

The text is bounded before it is parsed: size, then nesting and length of numbers, both by one linear pass over the
bytes. With all three bounded, the standard parser's work is linear (some 20 ms for a full MiB), its recursion stays far
from the stack's end, and its memory below 60 MiB; a child process with limits of its own would guard against nothing
more, and would cost every job 15 ms. PostgreSQL accepts some of what is refused here (1e400) and refuses some of what
Python reads (NUL, lone surrogates, NaN).
"""

import json
import math
import re
from typing import Any, NoReturn

LARGEST = 1 << 20  # bytes
DEEPEST = 64
LONGEST_NUMBER = 64  # characters, so that no integer costs quadratic time

# Strings first, so that brackets and digits within them do not count. The closing quote is optional, so that a match
# once begun always succeeds: a text of unclosed strings would otherwise be scanned to its end from each of its quotes.
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]|[-+.0-9eE]{2,}', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class InvalidResult(ValueError):
    """The text is no acceptable result. The message is for the client: one line, without the job's own text."""


def parse_result(data: bytes) -> Any:
    """The value in `data`: finite, without repeated keys, NUL or lone surrogates. Raises InvalidResult."""
    if len(data) > LARGEST:
        raise InvalidResult(f"larger than {LARGEST} bytes")
    _bound(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidResult(f"not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(
            text, parse_float=_finite, parse_constant=_constant, object_pairs_hook=_without_repeats
        )
    except InvalidResult:
        raise
    except json.JSONDecodeError as error:
        raise InvalidResult(f"not JSON at line {error.lineno}, column {error.colno}") from None
    except (
        RecursionError
    ):  # out of reach with the depth bounded; a caller near the stack's end could still meet it
        raise InvalidResult("nested too deeply") from None
    _check_strings(value)
    return value


def _bound(data: bytes) -> None:
    """Nesting and length of numbers, without parsing. A text that is not JSON may pass: the parser refuses it."""
    depth = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            if depth > DEEPEST:
                raise InvalidResult(f"nested deeper than {DEEPEST}")
        elif first in b"]}":
            depth -= 1
        elif first != ord('"') and token.end() - token.start() > LONGEST_NUMBER:
            raise InvalidResult(f"a number longer than {LONGEST_NUMBER} characters")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidResult("a number out of range")
    return value


def _constant(name: str) -> NoReturn:
    raise InvalidResult(f"{name} is not a JSON number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidResult("a repeated key")
    return found


def _check_strings(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            _check_string(item)
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())


def _check_string(text: str) -> None:
    if "\0" in text:
        raise InvalidResult("a NUL character")
    if _SURROGATE.search(text):
        raise InvalidResult("a lone surrogate")
