"""How the demo looks in a terminal: one line per step, colour only where it is wanted."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from .progress import raw_line

BOLD, DIM, RED, GREEN, YELLOW, CYAN = 1, 2, 31, 32, 33, 36
_WIDTH = 11  # of the words in front of each line
_STATUS = {"succeeded": GREEN, "failed": RED, "cancelled": YELLOW, "expired": YELLOW, "running": CYAN}


def coloured() -> bool:
    """Only on a terminal that knows colours, and never against NO_COLOR (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, *codes: int) -> str:
    """The text in colour, or as it is."""
    if not codes or not text or not coloured():
        return text
    return f"\x1b[{';'.join(str(code) for code in codes)}m{text}\x1b[0m"


def title(text: str) -> None:
    """A heading with air above it."""
    raw_line("")
    raw_line(paint(text, BOLD))


def line(word: str, text: str, *codes: int) -> None:
    """One line: a word in front, then the text."""
    raw_line(f"  {paint(f'{word:<{_WIDTH}}', DIM)} {paint(text, *codes)}")


def status(word: str, note: str = "") -> None:
    """A status or phase that a job has reached."""
    shown = paint(f"{word:<{_WIDTH}}", _STATUS.get(word, BOLD))
    raw_line(f"  {shown} {note}".rstrip())


def log_line(text: str) -> None:
    """One line of a job's own output; what could steer the terminal is made visible."""
    raw_line(f"  {'':<{_WIDTH}} {paint('│', DIM)} {printable(text)}")


def printable(text: str) -> str:
    """The text with control characters escaped: a job's output must not steer the reader's terminal."""
    return "".join(
        letter if letter.isprintable() or letter == "\t" else repr(letter)[1:-1] for letter in text
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as their longest cell; the last one may run on."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        raw_line("  " + (paint(text, DIM) if number == 0 else text))


def size(count: int) -> str:
    """Bytes for people."""
    if count < 10_000:
        return f"{count:,} bytes"
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def seconds(start: str, end: str) -> float:
    """Seconds between two RFC 3339 times."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def durations(events: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """How long each stage took, from one event to the next; stages entered twice are added up."""
    taken: dict[str, float] = {}
    for event, following in itertools.pairwise(events):
        spent = seconds(event["created_at"], following["created_at"])
        taken[event["kind"]] = taken.get(event["kind"], 0.0) + spent
    return list(taken.items())
