"""How a job's rows are shown to an operator. Everything that a client or a job wrote is escaped."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobs.billing.charges import money_text
from jobs.billing.cost import cost
from jobs.logs import bytes_cut, read_log, shipped_offset
from jobs.models import Attempt, Job, Stream

TAIL_BYTES = 8 * 1024
DASH = "—"


def ago(moment: datetime | None, now: datetime | None = None) -> str | SafeString:
    """`3 min ago`, with the full time on hover."""
    if moment is None:
        return DASH
    seconds = int(((now or timezone.now()) - moment).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= size:
            text = f"{abs(seconds) // size} {unit}"
            break
    else:
        text = f"{abs(seconds)} s"
    words = f"{text} ago" if seconds >= 0 else f"in {text}"
    return format_html(
        '<time datetime="{0}" title="{0}">{1}</time>', moment.isoformat(timespec="seconds"), words
    )


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> SafeString | str:
    """A plain table; an empty one is a dash."""
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", '<td class="pr-6 py-1 align-top">{}</td>', ((cell,) for cell in row)),)
            for row in rows
        ),
    )
    if not body:
        return DASH
    titles = format_html_join(
        "", '<th class="pr-6 py-1 text-left font-semibold">{}</th>', ((title,) for title in head)
    )
    return format_html('<div class="overflow-x-auto"><table><tr>{}</tr>{}</table></div>', titles, body)


def timeline(job: Job) -> SafeString | str:
    """Each state that the job reached, when, and how long it stayed in it."""
    events = list(job.events.select_related("attempt"))
    ends = [event.created_at for event in events[1:]] + [None if not job.is_final else job.finished_at]
    rows = [
        (
            event.kind,
            event.attempt.number if event.attempt else DASH,
            ago(event.created_at),
            _seconds(end - event.created_at) if end else DASH,
            event.message,
        )
        for event, end in zip(events, ends, strict=True)
    ]
    return table(["event", "attempt", "when", "lasted", ""], rows)


def attempts(job: Job) -> SafeString | str:
    """Each try of the job."""
    rows = [
        (
            attempt.number,
            attempt.engine.name,
            attempt.get_status_display(),
            attempt.end_reason or DASH,
            DASH if attempt.exit_code is None else attempt.exit_code,
            ", ".join(map(str, attempt.cores)),
            ", ".join(attempt.device_uuids) or DASH,
            attempt.container_name,
            attempt.leftover or DASH,
        )
        for attempt in job.attempts.select_related("engine")
    ]
    return table(
        ["#", "engine", "state", "reason", "exit", "cores", "devices", "container", "left over"], rows
    )


def outputs(job: Job) -> SafeString | str:
    """What was stored, and what was refused."""
    stored: list[tuple[Any, ...]] = [
        (artifact.path, artifact.size, artifact.sha256) for artifact in job.artifacts.all()[:200]
    ]
    refused: list[tuple[Any, ...]] = [
        (entry.get("path", ""), DASH, f"refused: {entry.get('reason', '')}") for entry in job.refused_outputs
    ]
    return table(["path", "bytes", "sha256"], stored + refused)


def amounts(job: Job) -> SafeString | str:
    """What was asked and what it got."""
    asked = job.spec["resources"]
    rows = [(slug, asked.get(slug, DASH), amount) for slug, amount in job.terms["resources"].items()]
    return table(["resource", "asked", "gets"], rows)


def money(job: Job) -> str:
    """What the job cost, or costs so far of what is held; a dash when it costs nothing by its terms."""
    found = cost(job, timezone.now())
    if found is None:
        return DASH
    text = f"{money_text(found.amount)} {found.currency}"
    return text if found.final else f"{text} of {money_text(found.held)} held"


def log_tail(attempt: Attempt, stream: Stream) -> SafeString | str:
    """The last bytes of a stream; what is no UTF-8 is shown as escapes."""
    end = shipped_offset(attempt, stream)
    data, _ = read_log(attempt, stream, max(0, end - TAIL_BYTES), TAIL_BYTES)
    text = data.decode("utf-8", "backslashreplace").replace("\0", "\\0")
    cut = bytes_cut(attempt, stream)
    note = f"{end} bytes, {cut} cut" if cut else f"{end} bytes"
    return format_html(
        '<div>{}</div><pre class="whitespace-pre-wrap max-h-96 overflow-y-auto">{}</pre>', note, text
    )


def _seconds(span: timedelta) -> str:
    return f"{max(0.0, span.total_seconds()):.2f} s"  # two clocks may differ by a little
