"""The Overview as the first page of the admin, and the part of it that is fetched again every few seconds."""

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from compute_site.core.showing import ago, link, span, table
from compute_site.overview import Overview, read_overview
from environments.admin import pictures
from jobs.admin_pages import reason_words
from jobs.billing.charges import money_text
from jobs.models import Job
from providers.budgets import plain

_CENT = Decimal("0.01")
# Who may read all of it: it tells of every account's jobs and money.
SEES = [
    *("jobs.view_job", "environments.view_host", "workers.view_worker"),
    *("billing.view_ledgertransaction", "providers.view_pod"),
]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What the first page of the admin is rendered with; nothing more for who may not see everything."""
    if request.user.has_perms(SEES):
        context.update(shown(read_overview()), title="Overview")
    return context


def overview(request: HttpRequest) -> HttpResponse:
    """The Overview alone. Who has been logged out since is sent to the log-in page, not given one in the middle."""
    if not admin.site.has_permission(request):
        return HttpResponse(headers={"HX-Redirect": reverse("admin:index")})
    if not request.user.has_perms(SEES):
        return HttpResponse(status=403)
    return render(request, "overview/overview.html", shown(read_overview()))


def shown(found: Overview) -> dict[str, Any]:
    """The Overview in words and pictures, for its template."""
    return {
        "overview": found,
        "oldest": span(found.oldest_wait.total_seconds()) if found.oldest_wait is not None else "",
        "failed": [(reason, count, reason_words(reason)) for reason, count in found.failed],
        "engines": [
            (link(engine), alive, ago(engine.worker_seen_at, found.now), engine)
            for engine, alive in found.engines
        ],
        "missed": [
            (link(worker, f"{worker.engine} {worker.short_id}"), ago(worker.heartbeat_at, found.now))
            for worker in found.missed
        ],
        "remote": sorted(found.remote.items()),
        "spend": [f"{money_text(amount)} {currency}" for currency, amount in found.spend],
        "pods_per_hour": plain(found.pods.per_hour.quantize(_CENT)),
        "pods_so_far": plain(found.pods.so_far.quantize(_CENT)),
        "offers": [(link(one), one, pictures.use_bars(uses)) for one, uses in found.offers],
        "machines": [
            (link(one.host), one, pictures.cores_of(one.cores), pictures.devices_of(one.devices))
            for one in found.machines
        ],
        "legend": pictures.legend(),
        "columns": pictures.columns(
            [(f"{hour.start:%H}:00", hour.ended - hour.failed, hour.failed) for hour in found.hours]
        ),
        "ended": sum(hour.ended for hour in found.hours),
        "failures_table": table(
            ["job", "when", "why", "environment", "account"],
            (_failure(job, found) for job in found.last_failures),
        ),
    }


def _failure(job: Job, found: Overview) -> tuple[Any, ...]:
    return (
        link(job),
        ago(job.finished_at, found.now),
        reason_words(job.end_reason),
        link(job.environment),
        link(job.account),
    )
