"""How a job's rows are shown to an operator. Everything that a client or a job wrote is escaped."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from compute_site.core.showing import DASH, ago, link, long, mib, size, table
from environments.admin.pictures import bar, strip
from environments.cpuset import format_cores
from environments.models import ResourceKind
from jobs.billing.charges import money_text
from jobs.billing.cost import cost
from jobs.end_reasons import END_REASONS
from jobs.logs import bytes_cut, read_log, shipped_offset
from jobs.models import Attempt, Job, JobEvent, JobStatus, Stream

TAIL_BYTES = 8 * 1024
MIB = 1024 * 1024
SIZES = (ResourceKind.RAM, ResourceKind.DISK)


def reason_words(reason: str) -> str | SafeString:
    """An end reason in words, with what the client reads on hover; a dash for none."""
    if not reason:
        return DASH
    message = END_REASONS[reason].message if reason in END_REASONS else ""
    return format_html('<span title="{}: {}">{}</span>', reason, message, reason.replace("_", " "))


def timeline(job: Job) -> SafeString | str:
    """A strip of the states, then each event: when, and how long until the next."""
    events = list(job.events.select_related("attempt"))
    end = job.finished_at if job.is_final else timezone.now()
    states = [event for event in events if event.kind in JobStatus.values]
    ends = [event.created_at for event in events[1:]] + [job.finished_at]
    rows = [
        (
            event.kind.replace("_", " "),
            event.attempt.number if event.attempt else DASH,
            ago(event.created_at),
            _seconds(until - event.created_at) if until else DASH,
            event.message,
        )
        for event, until in zip(events, ends, strict=True)
    ]
    phases = list(_phases(states, end))
    return format_html("{}{}", strip(phases), table(["event", "attempt", "when", "lasted", ""], rows))


def _phases(states: list[JobEvent], end: Any) -> Iterator[tuple[str, float]]:
    ends = [event.created_at for event in states[1:]] + [end]
    for event, until in zip(states, ends, strict=True):
        yield event.kind, max(0.0, (until - event.created_at).total_seconds())


def attempts(job: Job) -> SafeString | str:
    """Each try of the job."""
    rows = [
        (
            attempt.number,
            link(attempt.engine),
            attempt.get_status_display(),
            reason_words(attempt.end_reason),
            DASH if attempt.exit_code is None else attempt.exit_code,
            format_cores(attempt.cores) or DASH,
            ", ".join(uuid[-8:] for uuid in attempt.device_uuids) or DASH,
            long(attempt.container_name),
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
        (artifact.path, size(artifact.size), long(artifact.sha256)) for artifact in job.artifacts.all()[:200]
    ]
    refused: list[tuple[Any, ...]] = [
        (entry.get("path", ""), DASH, f"refused: {entry.get('reason', '')}") for entry in job.refused_outputs
    ]
    return table(["path", "size", "sha256"], stored + refused)


def amounts(job: Job) -> SafeString | str:
    """What was asked, what it got, and what of that it used in the end."""
    asked, kinds = job.spec["resources"], job.terms["kinds"]
    rows = [
        (slug, _amount(asked.get(slug), kinds.get(slug)), _amount(amount, kinds.get(slug)), _used(job, kinds.get(slug), amount))
        for slug, amount in job.terms["resources"].items()
    ]  # fmt: skip
    return table(["resource", "asked", "gets", "used"], rows)


def _amount(amount: Any, kind: str | None) -> str:
    if amount is None:
        return DASH
    return mib(amount) if kind in SIZES and isinstance(amount, int) else str(amount)


def _used(job: Job, kind: str | None, got: int) -> SafeString | str:
    seconds, peak = job.usage.get("cpu_seconds"), job.usage.get("peak_memory_bytes")
    if kind == ResourceKind.CPU and seconds is not None and job.run_seconds:
        mean = seconds / job.run_seconds
        return bar(mean, got, f"{mean:.2f} on average ({seconds:.2f} s of CPU)")
    if kind == ResourceKind.RAM and peak is not None:
        return bar(peak / MIB, got, f"{mib(round(peak / MIB))} at most")
    return DASH


def money(job: Job) -> str:
    """What the job cost, or costs so far of what is held; a dash when it costs nothing by its terms."""
    found = cost(job, timezone.now())
    if found is None:
        return DASH
    text = f"{money_text(found.amount)} {found.currency}"
    return text if found.final else f"{text} of {money_text(found.held)} held"


def log(job: Job, stream: Stream) -> SafeString | str:
    """The last bytes of the last attempt's stream; while the job is not final they are fetched again and again."""
    attempt = job.attempts.order_by("number").last()
    if attempt is None:
        return DASH
    if job.is_final:
        return log_tail(attempt, stream)
    address = reverse("admin:jobs_job_log", args=[job.pk, stream])
    return format_html(
        '<div hx-get="{}" hx-trigger="every 3s" hx-swap="outerHTML">{}</div>',
        address,
        log_tail(attempt, stream),
    )


def log_tail(attempt: Attempt, stream: Stream) -> SafeString | str:
    """The last bytes of a stream; what is no UTF-8 is shown as escapes."""
    end = shipped_offset(attempt, stream)
    if not end:
        return "nothing was written"
    data, _ = read_log(attempt, stream, max(0, end - TAIL_BYTES), TAIL_BYTES)
    text = data.decode("utf-8", "backslashreplace").replace("\0", "\\0")
    cut = bytes_cut(attempt, stream)
    notes = (
        [f"{end} bytes"]
        + [f"the last {TAIL_BYTES} of them"] * (end > TAIL_BYTES)
        + [f"{cut} cut"] * bool(cut)
    )
    return format_html('<div class="cs-note">{}</div><pre class="cs-log">{}</pre>', ", ".join(notes), text)


def _seconds(lasted: timedelta) -> str:
    return f"{max(0.0, lasted.total_seconds()):.2f} s"  # two clocks may differ by a little
