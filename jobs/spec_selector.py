"""The selector of a job: what an environment must have, in place of its name."""

import re
from collections.abc import Mapping
from typing import Any

from jobs import spec_fields as fields

NAMES = ("labels", "architecture", "max_price_per_minute", "currency")
ARCHITECTURE = re.compile(r"[a-z0-9_]{1,32}\Z")
PRICE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,18})?\Z")
CURRENCY = "credit"  # prices in several cannot be compared: a selector always has one


def read_selector(value: object, path: str, faults: fields.Faults) -> Any:
    """The selector with all its names, or faults; nothing is coerced."""
    if not isinstance(value, Mapping):
        faults.add(path, "Not an object.")
        return None
    faults.unknown(value, NAMES, path)
    fields.labels(value.get("labels", {}), f"{path}/labels", faults)
    architecture, price = value.get("architecture"), value.get("max_price_per_minute")
    if architecture is not None and not _matches(ARCHITECTURE, architecture):
        faults.add(f"{path}/architecture", "Not the name of an architecture, like “amd64”.")
    if price is not None and not _matches(PRICE, price):
        faults.add(
            f"{path}/max_price_per_minute", "Not a decimal in quotes, 0 or more, of at most 18 decimals."
        )
    currency = value.get("currency", CURRENCY)
    if fault := fields.text_fault(currency, 128) or ("" if currency else "Empty."):
        faults.add(f"{path}/currency", fault)
    return {
        "labels": value.get("labels", {}),
        "architecture": architecture,
        "max_price_per_minute": price,
        "currency": currency,
    }


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and bool(pattern.match(value))
