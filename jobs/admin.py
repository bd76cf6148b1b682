"""Jobs for the operator: to look at, and to cancel."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from compute_site.core.admin import ReadOnlyAdmin
from jobs import admin_pages as pages
from jobs.cancellation import cancel
from jobs.models import FINAL, Job, JobStatus, Stream
from jobs.pending import pending_reason

# Waiting is not red.
COLOURS = {
    JobStatus.QUEUED: "info",
    JobStatus.PREPARING: "info",
    JobStatus.RUNNING: "info",
    JobStatus.COLLECTING: "info",
    JobStatus.SUCCEEDED: "success",
    JobStatus.FAILED: "danger",
    JobStatus.CANCELLED: "warning",
    JobStatus.EXPIRED: "warning",
}


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Read-only; cancelling goes through the same function as the API."""

    list_display = ["name", "state", "environment", "account", "tier", "reason", "age", "ran", "cost"]
    list_filter = ["status", "tier", "end_reason", "environment"]
    list_filter_submit = True
    search_fields = ["public_id", "account__name"]
    search_help_text = (
        "Id, any part of it (the last 8 characters are what lists show), or name of the account."
    )
    list_select_related = ["account", "environment__engine", "hold"]
    list_per_page = 50
    actions = ["cancel_jobs"]
    actions_detail = ["cancel_job"]
    fieldsets = [
        (None, {"fields": ["public_id", "standing", "pending", "reason", "end_detail", "exit_code", "ran", "cost"]}),
        ("Asked", {"fields": ["account", "submitted_by", "environment", "tier", "resources", "max_duration", "labels"]}),
        ("Timeline", {"fields": ["timeline"]}),
        ("Attempts", {"fields": ["attempts_table"]}),
        ("Log", {"fields": ["stdout", "stderr"]}),
        ("Outputs", {"fields": ["outputs", "result", "usage", "manifest_sha256", "storage_expires_at", "storage_purged_at"]}),
        ("Spec and terms", {"fields": ["spec", "terms", "image_id"]}),
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        rows = super().get_queryset(request)
        if request.resolver_match and request.resolver_match.url_name == "jobs_job_changelist":
            return rows.defer("spec", "result", "manifest", "refused_outputs", "usage")
        return rows

    @display(description="job", ordering="pk")
    def name(self, job: Job) -> str:
        return job.short_id

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, job: Job) -> tuple[str, str]:
        return job.status, f"{job.status} · {job.phase}" if job.phase else job.status

    @display(description="state")
    def standing(self, job: Job) -> str:
        return f"{job.status}, {job.phase}" if job.phase else job.status

    @display(description="why", ordering="end_reason")
    def reason(self, job: Job) -> str:
        return job.end_reason or ("cancel requested" if job.cancel_requested_at else pages.DASH)

    @display(description="age", ordering="created_at")
    def age(self, job: Job) -> str:
        return pages.ago(job.created_at)

    @display(description="ran", ordering="run_seconds")
    def ran(self, job: Job) -> str:
        return pages.DASH if job.run_seconds is None else f"{job.run_seconds:.1f} s"

    @display(description="cost")
    def cost(self, job: Job) -> str:
        return pages.money(job)

    @display(description="waits for")
    def pending(self, job: Job) -> str:
        return pending_reason(job) or pages.DASH

    @display(description="resources")
    def resources(self, job: Job) -> str:
        return pages.amounts(job)

    @display(description="timeline")
    def timeline(self, job: Job) -> str:
        return pages.timeline(job)

    @display(description="attempts")
    def attempts_table(self, job: Job) -> str:
        return pages.attempts(job)

    @display(description="outputs")
    def outputs(self, job: Job) -> str:
        return pages.outputs(job)

    @display(description="stdout, last attempt")
    def stdout(self, job: Job) -> str:
        return self._tail(job, Stream.STDOUT)

    @display(description="stderr, last attempt")
    def stderr(self, job: Job) -> str:
        return self._tail(job, Stream.STDERR)

    def _tail(self, job: Job, stream: Stream) -> str:
        attempt = job.attempts.order_by("number").last()
        return pages.log_tail(attempt, stream) if attempt else pages.DASH

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Ask each selected job that is not final to stop; the account pays nothing for it."""
        jobs = list(queryset.exclude(status__in=FINAL))
        for job in jobs:
            cancel(job, request.user.get_username(), operator=True)
        messages.success(request, f"{len(jobs)} jobs cancelled or asked to stop.")

    @action(
        description="Cancel",
        permissions=["cancel"],
        dialog={
            "title": "Cancel this job?",
            "description": "It is stopped where it is and ends as cancelled by the operator; nothing is billed.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Cancel the job",
        },
    )
    def cancel_job(self, request: HttpRequest, form: BaseDialogForm, object_id: int) -> HttpResponse:
        """The same for one job."""
        job = cancel(Job.objects.get(pk=object_id), request.user.get_username(), operator=True)
        messages.success(request, f"Job {job.short_id} is {job.status}.")
        return redirect(reverse("admin:jobs_job_change", args=[object_id]))

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("jobs.change_job")
