"""What a job costs by its terms: pure arithmetic, exact to the last of 18 decimals.

Python rounds decimals to 28 digits unless told otherwise; money has 38, so all sums happen in the context `EXACT`.
"""

from collections.abc import Mapping
from decimal import Context, Decimal, localcontext
from typing import Any

EXACT = Context(prec=100)  # price, amount and minutes at their largest have 68 digits
TOO_LARGE = Decimal(10) ** 20  # what numeric(38, 18) cannot store


def price_per_minute(terms: Mapping[str, Any]) -> Decimal:
    """Each price times the amount, summed over the resources of these terms; 0 in the free tier."""
    with localcontext(EXACT):
        prices = terms["prices"].items()
        return sum((Decimal(price) * terms["resources"].get(slug, 0) for slug, price in prices), Decimal(0))


def charge(terms: Mapping[str, Any], run_seconds: float) -> Decimal:
    """The price of a run of that length in minutes, rounded up; at least `min_job_duration` is counted."""
    with localcontext(EXACT):
        return price_per_minute(terms) * minutes(max(run_seconds, terms["min_job_duration"]))


def minutes(seconds: float) -> int:
    """Whole minutes, rounded up."""
    return int(-(-seconds // 60))


def money_text(amount: Decimal) -> str:
    """A decimal without needless zeros and never in scientific notation: what clients and operators read."""
    with localcontext(EXACT):
        return f"{amount.normalize():f}" if amount else "0"
