"""What is said of a value that is no number, or none that may be."""

from decimal import Decimal

import pytest

from compute_site.core.numbers import decimal_error, shown, whole_error


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, ""),
        (9, ""),
        (10, "Found 10; enter at most 9."),
        (-1, "Found -1; enter a whole number, 0 or more."),
        ("4", "Found “4”; enter a whole number, 0 or more."),
        (True, "Found true; enter a whole number, 0 or more."),
        (1.0, "Found 1.0; enter a whole number, 0 or more."),
        (Decimal("1.5"), "Found 1.5; enter a whole number, 0 or more."),
        (float("nan"), "Found nan; enter a whole number, 0 or more."),
        (None, "Found null; enter a whole number, 0 or more."),
    ],
)
def test_whole(value: object, says: str):
    assert whole_error(value, 0, 9) == says


def test_whole_without_bounds_and_of_a_unit():
    assert whole_error(-(10**30), None) == ""
    assert whole_error("x", None, of=" of MiB") == "Found “x”; enter a whole number of MiB."


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Decimal("0.12"), ""),
        (Decimal("0.1200"), ""),  # zeros behind say nothing
        (Decimal("9E+2"), ""),
        (Decimal("0E-99"), ""),
        (7, ""),
        (Decimal("0.123"), "Found 0.123; enter at most 2 decimals."),
        (Decimal("1E+3"), "Found 1E+3; enter at most 3 digits before the point."),
        (-1, "Found -1; enter a number, 0 or more."),
        (0.5, "Found 0.5; enter a number, 0 or more."),
        ("1", "Found “1”; enter a number, 0 or more."),
        (True, "Found true; enter a number, 0 or more."),
        (Decimal("NaN"), "Found NaN; enter a number, 0 or more."),
        (Decimal("sNaN"), "Found sNaN; enter a number, 0 or more."),
        (Decimal("-Infinity"), "Found -Infinity; enter a number, 0 or more."),
    ],
)
def test_decimal(value: object, says: str):
    assert decimal_error(value, 0, 5, 2) == says


def test_shown_is_short():
    assert shown({"a": 1}) == "an object"
    assert shown([1]) == "a list"
    assert len(shown("x" * 1000)) == 80
