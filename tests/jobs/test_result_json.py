"""What a job may write as its result, and what is refused before it costs anything."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest

from jobs.result_json import DEEPEST, LARGEST, LONGEST_NUMBER, InvalidResult, parse_result


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1.5e300,
        10**63,
        'plain \u00e9 \U0001f600 \\ " [[[[ 1111',
        {"status": "ok", "result": {"accuracy": 0.96, "classes": ["a", "b"], "empty": {}, "none": []}},
    ],
)
def test_good_values_come_back_unchanged(value: Any) -> None:
    assert parse_result(json.dumps(value).encode()) == value


def test_escaped_pairs_of_surrogates_are_characters() -> None:
    assert parse_result(b'"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON at line 1, column 1"),
        (b"{", "not JSON at line 1, column 2"),
        (b'{"a": 1} x', "not JSON at line 1, column 10"),
        (b"\xef\xbb\xbf{}", "not JSON at line 1, column 1"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"[Infinity]", "Infinity is not a JSON number"),
        (b"-Infinity", "-Infinity is not a JSON number"),
        (b"1e400", "a number out of range"),
        (b"[-1E999]", "a number out of range"),
        (b"1" * (LONGEST_NUMBER + 1), "a number longer than 64 characters"),
        (b"[0." + b"1" * 100 + b"]", "a number longer than 64 characters"),
        (b'{"a": 1, "a": 2}', "a repeated key"),
        (b'[{"x": {"a": 1, "\\u0061": 1}}]', "a repeated key"),
        (b'"\\u0000"', "a NUL character"),
        (b'{"\\u0000": 1}', "a NUL character"),
        (b'["\\ud800"]', "a lone surrogate"),
        (b'{"\\udfff x": []}', "a lone surrogate"),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nested deeper than 64"),
        (b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1), "nested deeper than 64"),
        (b'"' + b"a" * LARGEST + b'"', "larger than 1048576 bytes"),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidResult) as refusal:
        parse_result(data)
    assert str(refusal.value) == message


def test_depth_at_the_limit_is_taken() -> None:
    value = parse_result(b"[" * DEEPEST + b"]" * DEEPEST)
    for _ in range(DEEPEST - 1):
        (value,) = value
    assert value == []


def test_brackets_in_strings_are_not_nesting() -> None:
    assert parse_result(b'["' + b'[{\\"' * 1000 + b'"]') == ['[{"' * 1000]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * LARGEST,
        b'"' * LARGEST,
        b"\\" * LARGEST,
        b'"' + b"\\" * (LARGEST - 1),
        b'"\\' * (LARGEST // 2),
        b"1" * LARGEST,
        b"[1," * (LARGEST // 3),
        b"[" + b"1," * (LARGEST // 2 - 1),
        b"[" + b"{}," * (LARGEST // 3 - 1) + b"0]",
        b"e+-." * (LARGEST // 4),
    ],
    ids=range(10),
)
def test_a_full_mebibyte_of_anything_ends_soon(data: bytes) -> None:
    """Linear work: the slowest of these takes some 0.1 s of one core; a second would be a blow-up."""
    began = time.process_time()
    with suppress(InvalidResult):
        parse_result(data)
    assert time.process_time() - began < 1
