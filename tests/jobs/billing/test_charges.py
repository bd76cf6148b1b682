"""What a job costs, to the last decimal."""

from decimal import Decimal

import pytest

from jobs.billing.charges import EXACT, charge, minutes, money_text, price_per_minute

TERMS = {
    "prices": {"cpu": "0.01", "ram": "0.000002"},
    "resources": {"cpu": 2, "ram": 128},
    "min_job_duration": 60,
}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, 0), (0.001, 1), (60, 1), (60.000001, 2), (61, 2), (120, 2), (3600, 60)]
)
def test_minutes_are_rounded_up(seconds, expected):
    assert minutes(seconds) == expected


def test_the_price_is_the_sum_over_the_resources():
    assert price_per_minute(TERMS) == Decimal("0.020256")
    assert price_per_minute({**TERMS, "prices": {}}) == 0


@pytest.mark.parametrize(
    ("seconds", "least", "expected"),
    [
        (0, 60, 1),
        (1, 60, 1),
        (60, 60, 1),
        (61, 60, 2),
        (61, 90, 2),
        (30, 90, 2),
        (10, 600, 10),
        (601, 600, 11),
    ],
)
def test_a_run_costs_its_minutes_and_at_least_the_shortest(seconds, least, expected):
    assert charge({**TERMS, "min_job_duration": least}, seconds) == Decimal("0.020256") * expected


def test_nothing_is_rounded_at_38_digits():
    terms = {"prices": {"x": "0." + "1" * 18}, "resources": {"x": 10**19 - 1}, "min_job_duration": 60}
    assert int(charge(terms, 61).scaleb(18, EXACT)) == int("1" * 18) * (10**19 - 1) * 2


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "0"), ("0E-18", "0"), ("100.000000000000000000", "100"), ("1E+3", "1000"), ("-0.000000000000000001", "-0.000000000000000001"),
     ("12345678901234567890.123456789012345678", "12345678901234567890.123456789012345678")],
)  # fmt: skip
def test_money_as_text(amount, text):
    assert money_text(Decimal(amount)) == text
