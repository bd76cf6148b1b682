"""A file of another program, read value by value: each with its path, checked, and nothing left over without a word."""

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from django.core.exceptions import ValidationError

from compute_site.core.numbers import decimal_error, shown, whole_error
from environments.amounts import LARGEST
from environments.importing.plan import Note

GIB = 1024  # MiB; the file's memory and disk are GiB, ours MiB
UNITS = {"gib": GIB, "gb": GIB, "mib": 1, "mb": 1}
DIGITS = re.compile(
    r"[0-9]{1,30}\Z"
)  # of an amount in text: as far as numbers go, and of letters that all can read
LARGEST_EXPONENT = 30


class Report:
    """What is wrong and what should be known, by path of the file."""

    def __init__(self) -> None:
        self.errors: dict[str, list[str]] = defaultdict(list)
        self.notes: list[Note] = []
        self._readings: list[Reading] = []

    def refuse(self, path: str, message: str) -> None:
        """Something is wrong: the import will be refused, after everything was read."""
        if message not in self.errors[path]:
            self.errors[path].append(message)

    def note(self, path: str, message: str) -> None:
        """Something should be known."""
        if (found := Note(path, message)) not in self.notes:
            self.notes.append(found)

    def watch(self, reading: "Reading") -> None:
        """The keys of this object that nobody reads are to be reported."""
        self._readings.append(reading)

    def finish(self) -> None:
        """Report unread keys; raises ValidationError {path: messages} if anything was wrong."""
        for reading in self._readings:
            for key, hint in reading.unread():
                self.note(reading.at(key), f"unknown key, ignored{hint}.")
        if self.errors:
            raise ValidationError(dict(self.errors))


class Reading:
    """One object of the file. Null is the same as absent. A wrong value is reported, and read as absent."""

    def __init__(self, value: Any, path: str, report: Report, what: str = "an object") -> None:
        self.path, self.report = path, report
        if not isinstance(value, dict):
            report.refuse(path, f"Found {shown(value)}; {what} belongs here.")
            value = {}
        self._values: dict[str, Any] = value
        self._read: set[str] = set()
        report.watch(self)

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}"

    def value(self, key: str) -> Any:
        """The value as it stands there."""
        self._read.add(key)
        return self._values.get(key)

    def names(self) -> list[str]:
        """All keys; they count as read."""
        self._read.update(self._values)
        return list(self._values)

    def unread(self) -> Iterator[tuple[str, str]]:
        """Keys that nobody asked for, each with a hint at what may have been meant."""
        for key in self._values:
            if key not in self._read:
                near = get_close_matches(key, self._read, n=1, cutoff=0.75)
                yield key, f" (is {near[0]} meant?)" if near else ""

    def drop(self, key: str, why: str) -> None:
        """A known key that we have no place for."""
        if self.value(key) not in (None, {}, []):
            self.report.note(self.at(key), f"dropped: {why}")

    def text(self, key: str, default: str = "") -> str:
        value = self.value(key)
        if value is None or isinstance(value, str):
            return default if value is None else value
        self.report.refuse(self.at(key), f"Found {shown(value)}; text belongs here.")
        return default

    def flag(self, key: str) -> bool:
        value = self.value(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.report.refuse(self.at(key), f"Found {shown(value)}; true or false belongs here.")
        return False

    def whole(self, key: str) -> int | None:
        """A whole number, 0 or more; None when absent."""
        value = self.value(key)
        return None if value is None else self._scaled(key, value, 1)

    def mebibytes(self, key: str) -> int | None:
        """GiB as a number, or text with its unit ("512MiB", "4GiB"), in MiB; None when absent."""
        value = self.value(key)
        if not isinstance(value, str):
            return None if value is None else self._scaled(key, value, GIB)
        number = value.strip().lower()
        for unit, factor in UNITS.items():
            if number.endswith(unit) and DIGITS.match(digits := number.removesuffix(unit).strip()):
                return self._scaled(key, int(digits), factor)
        self.report.refuse(
            self.at(key), f"Found {shown(value)}; write a number of GiB, or text such as 512MiB."
        )
        return None

    def number(self, key: str) -> Decimal | None:
        """A decimal number, 0 or more, with every digit that stands there; None when absent."""
        value = self.value(key)
        if value is None:
            return None
        found = exact(value)
        if found is None or found < 0:
            self.report.refuse(self.at(key), decimal_error(value, 0, 2 * LARGEST_EXPONENT, LARGEST_EXPONENT))
            return None
        return found

    def items(self, key: str) -> list[tuple[str, Any]]:
        """Path and value of each entry of a list; nothing when absent."""
        value = self.value(key)
        if value is not None and not isinstance(value, list):
            self.report.refuse(self.at(key), f"Found {shown(value)}; a list belongs here.")
            value = None
        return [(f"{self.at(key)}[{position}]", item) for position, item in enumerate(value or ())]

    def texts(self, key: str) -> list[tuple[str, str]]:
        """Path and text of each entry of a list of texts."""
        found = []
        for path, item in self.items(key):
            if isinstance(item, str) and item.strip():
                found.append((path, item.strip()))
            else:
                self.report.refuse(path, f"Found {shown(item)}; text belongs here.")
        return found

    def objects(self, key: str, what: str = "an object") -> list["Reading"]:
        """Each entry of a list of objects."""
        return [Reading(item, path, self.report, what) for path, item in self.items(key)]

    def object(self, key: str) -> "Reading | None":
        """An object; None when absent."""
        value = self.value(key)
        return None if value is None else Reading(value, self.at(key), self.report)

    def _scaled(self, key: str, value: Any, factor: int) -> int | None:
        found = exact(value)
        amount = None if found is None else found * factor
        if amount is not None and amount == amount.to_integral_value() and 0 <= amount <= LARGEST:
            return int(amount)
        most = LARGEST // factor if isinstance(value, int) else None
        of = " of MiB" if factor == GIB and isinstance(value, Decimal) else ""
        self.report.refuse(self.at(key), whole_error(value, 0, most, of))
        return None


def exact(value: Any) -> Decimal | None:
    """The number with all its digits; None for text, booleans, and numbers beyond all sense."""
    if type(value) not in (int, Decimal):
        return None
    number = Decimal(value)
    return number if not number or abs(number.adjusted()) <= LARGEST_EXPONENT else None
