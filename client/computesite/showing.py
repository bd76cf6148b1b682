"""What every group of commands shares: the site that is asked, and tables that nobody's words can bend."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .site import Refused, Site

console = Console()


@contextmanager
def site(opened: Callable[[], Site] = Site.from_environment) -> Iterator[Site]:
    """The site of the environment; a refusal ends the program with 1 and the site's words."""
    try:
        yield opened()
    except Refused as refused:
        Console(stderr=True).print(str(refused), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from None


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows below their head, a line each, however long."""
    made = Table(*head, box=None, header_style="dim", pad_edge=False)
    for row in rows:
        made.add_row(*(Text(_printable(cell)) for cell in row))
    # Without a width of its own the table would shorten what is wider than the terminal.
    made.width = console.measure(made, options=console.options.update(max_width=10_000)).maximum
    console.print(made, markup=False, soft_wrap=True, crop=False, no_wrap=True)


def _printable(text: str) -> str:
    """What somebody else named must not steer the terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
