"""How the fleet's rows are shown to an operator. Everything that a worker wrote is escaped."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from compute_site.core.showing import DASH, ago, mib, table
from jobs.models import Job
from workers.fleet.models import Audit, Fault, RemoteWorker, Unit
from workers.fleet.registration import status_now

CAPABILITIES = {
    "cpu": "cores",
    "ram": "MiB memory",
    "disk": "MiB disk",
    "device": "devices",
}


def link(row: Model | None, text: str = "") -> SafeString | str:
    """The row's own page, by its name or `text`."""
    if row is None:
        return DASH
    page = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    return format_html('<a class="text-link" href="{}">{}</a>', page, text or str(row))


def job_link(job: Job) -> SafeString | str:
    """The job by its short id."""
    return link(job, job.short_id)


def digest(sha256: str) -> SafeString | str:
    """The first characters of a hash, the whole of it on hover."""
    return format_html('<code title="{}">{}…</code>', sha256, sha256[:12]) if sha256 else DASH


def capabilities(worker: RemoteWorker) -> str:
    """What it may be given, in words."""
    told = worker.capabilities
    return (
        ", ".join(f"{told[kind]} {words}" for kind, words in CAPABILITIES.items() if told.get(kind)) or DASH
    )


def devices(worker: RemoteWorker) -> SafeString | str:
    """The devices of its machine, by its last heartbeat."""
    rows = [
        (device["model"], mib(device["memory_mib"]), device["driver_version"], device["uuid"])
        for device in worker.devices
    ]
    return table(["model", "memory", "driver", "UUID"], rows)


def lapses_of_unit(unit: Unit) -> SafeString | str:
    """Who lost a replica or failed it, and why."""
    rows = [
        (replica.number, lapse["worker"][-8:], lapse["why"][:300])
        for replica in unit.replicas.order_by("number")
        for lapse in replica.lapses
    ]
    return table(["replica", "worker", "why"], rows)


def replicas_of_unit(unit: Unit) -> SafeString | str:
    """Who runs it, and what they came to."""
    found = unit.replicas.select_related("worker", "owner__account").order_by("number")
    rows = [
        (
            replica.number,
            replica.get_status_display(),
            link(replica.worker),
            link(replica.owner),
            replica.tries,
            ago(replica.assigned_at),
            digest(replica.manifest_sha256),
            "signed" if replica.proof else DASH,
        )
        for replica in found
    ]
    head = ["replica", "status", "worker", "owner", "tries", "given", "result", "proof"]
    return table(head, rows)


def progress_of_unit(unit: Unit) -> SafeString | str:
    """What its workers said last while at work, and the end of the log that they sent."""
    rows = [
        (
            replica.number,
            link(replica.worker),
            replica.progress.get("note") or DASH,
            format_html('<pre class="cs-log">{}</pre>', replica.progress.get("log") or DASH),
        )
        for replica in unit.replicas.select_related("worker").order_by("number")
        if replica.progress
    ]
    return table(["replica", "worker", "note", "end of the log"], rows)


def audit_of_unit(unit: Unit) -> SafeString | str:
    """The second opinion on a dispute: where it runs, and what it found."""
    audit = Audit.objects.filter(unit=unit).select_related("job__environment__engine").first()
    if audit is None:
        return DASH
    row = (
        link(audit, audit.get_status_display()),
        job_link(audit.job),
        str(audit.job.environment),
        digest(audit.manifest_sha256),
        ago(audit.created_at),
    )
    return table(["outcome", "job", "runs on", "result", "ordered"], [row])


def faults(rows: Iterable[Fault]) -> SafeString | str:
    """Wrong results, whose and in what unit."""
    shown = [
        (
            link(fault.worker),
            link(fault.unit),
            digest(fault.found),
            digest(fault.expected),
            ago(fault.created_at),
        )
        for fault in rows
    ]
    return table(["worker", "unit", "found", "expected", "when"], shown)


def replicas_of_worker(worker: RemoteWorker, most: int = 20) -> SafeString | str:
    """What it was given last."""
    found = worker.replicas.select_related("unit__attempt__job").order_by("-assigned_at")[:most]
    rows = [
        (
            link(replica.unit),
            job_link(replica.unit.attempt.job),
            replica.get_status_display(),
            ago(replica.assigned_at),
            DASH if replica.run_seconds is None else f"{replica.run_seconds:.1f} s",
        )
        for replica in found
    ]
    return table(["unit", "job", "status", "given", "ran"], rows)


def workers(rows: Iterable[RemoteWorker], now: Any) -> SafeString | str:
    """The remote workers of an owner."""
    shown = [
        (link(worker), status_now(worker, now), worker.provider or DASH, ago(worker.heartbeat_at))
        for worker in rows
    ]
    return table(["worker", "state", "provider", "last seen"], shown)
