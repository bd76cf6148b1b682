"""How the operator's pages say things: times, sizes, tables, links. Everything that is shown is escaped."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

DASH = "—"
TRAILING_ZEROS = re.compile(r"^(-?[0-9]+(?:\.[0-9]*[1-9])?)\.?0{3,}$(?<=\.[0-9]{18})")  # of money as text
SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def span(seconds: float) -> str:
    """A length of time in its largest whole unit: `41 s`, `3 min`, `2 h`, `5 d`."""
    whole = int(abs(seconds))
    for size, unit in SPANS:
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def ago(moment: datetime | None, now: datetime | None = None) -> str | SafeString:
    """`3 min ago`, with the full time on hover; a dash for no time."""
    if moment is None:
        return DASH
    seconds = ((now or timezone.now()) - moment).total_seconds()
    words = f"{span(seconds)} ago" if seconds > -1 else f"in {span(seconds)}"
    full = moment.isoformat(" ", "seconds")
    return format_html('<time class="cs-time" datetime="{0}" title="{0}">{1}</time>', full, words)


def when(field: str, title: str = "") -> Callable[[Any], str]:
    """A column (or read-only field) that shows the time in `field` as `ago` does, and sorts by it."""

    @admin.display(description=title or field.removesuffix("_at").replace("_", " "), ordering=field)
    def shown(row: Any) -> str:
        return ago(getattr(row, field))

    shown.__name__ = f"{field}_ago"
    return shown


def mib(amount: int) -> str:
    """MiB in words: from 10 GiB on with one decimal less, so that a column stays narrow."""
    if amount < 1024:
        return f"{amount} MiB"
    return f"{amount / 1024:.1f} GiB" if amount < 10_240 else f"{amount / 1024:.0f} GiB"


def size(count: int) -> str:
    """Bytes in words, exact below 10 KiB."""
    if count < 10_240:
        return f"{count} B"
    return f"{count / 1024:.0f} KiB" if count < 1024 * 1024 else mib(count // (1024 * 1024))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> SafeString | str:
    """A plain table that scrolls sideways in a narrow window; an empty one is a dash."""
    body = format_html_join(
        "", "<tr>{}</tr>", ((format_html_join("", "<td>{}</td>", ((cell,) for cell in row)),) for row in rows)
    )
    if not body:
        return DASH
    titles = format_html_join("", "<th>{}</th>", ((title,) for title in head))
    return format_html(
        '<div class="cs-scroll"><table class="cs-table"><tr>{}</tr>{}</table></div>', titles, body
    )


def pairs(values: Any) -> SafeString | str:
    """A JSON value as rows of path and value, e.g. `resources.cpu` and 2; nothing is a dash."""
    if values in (None, {}, [], ""):
        return DASH
    return table(("", ""), list(_flat(values)))


def _flat(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(values, Mapping) and values:
        for key, value in values.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(values, list) and any(isinstance(value, Mapping | list) for value in values):
        for number, value in enumerate(values):
            yield from _flat(value, f"{path}[{number}]")
    elif isinstance(values, list | Mapping):
        yield path, " ".join(map(str, values)) or DASH
    else:
        yield path, DASH if values in (None, "") else TRAILING_ZEROS.sub(r"\1", str(values))


def pill(colours: Mapping[Any, str], state: tuple[str, str]) -> SafeString:
    """A state and its words on a page, in the colour that its list gives it."""
    return format_html('<span class="cs-pill cs-{}">{}</span>', colours.get(state[0], "default"), state[1])


def long(text: object) -> SafeString:
    """A long name or sum without spaces, which may break anywhere."""
    return format_html('<span class="cs-long">{}</span>', text)


def link(row: models.Model | None, text: object = None) -> SafeString | str:
    """A link to the row's own page; a dash for no row."""
    if row is None:
        return DASH
    page = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    return format_html('<a class="cs-link" href="{}">{}</a>', page, row if text is None else text)
