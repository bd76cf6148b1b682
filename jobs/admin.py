"""Jobs for the operator: to look at, and to cancel."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import URLPattern, path, reverse
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from compute_site.core.admin import ReadOnlyAdmin, perform
from compute_site.core.showing import DASH, ago, pairs, pill, when
from environments.admin.environment_filter import EnvironmentFilter
from jobs import admin_pages as pages
from jobs.admin_fit import would_fit
from jobs.admin_offers import OfferAdmin
from jobs.cancellation import cancel
from jobs.models import FINAL, Job, JobStatus, Stream
from jobs.pending import pending_reason

__all__ = ["JobAdmin", "OfferAdmin"]

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

    list_display = [
        *("name", "state", "environment", "account", "tier", "reason"),
        *(when("created_at", "age"), "ran", "cost"),
    ]
    list_filter = ["status", "tier", "end_reason", ("environment", EnvironmentFilter)]
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
        ("Asked and used", {"fields": ["account", "submitted_by", "environment", "tier", "resources", "max_duration", "label_rows"]}),
        ("Timeline", {"fields": ["timeline"]}),
        ("Attempts", {"fields": ["attempts_table"]}),
        ("Log", {"fields": ["stdout", "stderr"]}),
        ("Outputs", {"fields": ["outputs", "result_rows", "usage_rows", "manifest_sha256", "expires", "purged"]}),
        ("Spec and terms", {"fields": ["spec_rows", "terms_rows", "image_id"], "classes": ["collapse"]}),
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
        return pill(COLOURS, self.state(job))

    @display(description="why", ordering="end_reason")
    def reason(self, job: Job) -> str:
        if job.end_reason or not job.cancel_requested_at:
            return pages.reason_words(job.end_reason)
        return "cancel requested"

    @display(description="ran", ordering="run_seconds")
    def ran(self, job: Job) -> str:
        return DASH if job.run_seconds is None else f"{job.run_seconds:.2f}\N{NO-BREAK SPACE}s"

    @display(description="cost")
    def cost(self, job: Job) -> str:
        return pages.money(job)

    @display(description="waits for")
    def pending(self, job: Job) -> str:
        return pending_reason(job) or DASH

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

    @display(description="labels")
    def label_rows(self, job: Job) -> str:
        return pairs(job.labels)

    @display(description="result")
    def result_rows(self, job: Job) -> str:
        return pairs(job.result)

    @display(description="usage")
    def usage_rows(self, job: Job) -> str:
        return pairs(job.usage)

    @display(description="spec, as asked")
    def spec_rows(self, job: Job) -> str:
        return pairs(job.spec)

    @display(description="terms, as admitted")
    def terms_rows(self, job: Job) -> str:
        return pairs(job.terms)

    @display(description="kept until")
    def expires(self, job: Job) -> str:
        return ago(job.storage_expires_at)

    @display(description="removed")
    def purged(self, job: Job) -> str:
        return ago(job.storage_purged_at)

    @display(description="stdout, last attempt")
    def stdout(self, job: Job) -> str:
        return pages.log(job, Stream.STDOUT)

    @display(description="stderr, last attempt")
    def stderr(self, job: Job) -> str:
        return pages.log(job, Stream.STDERR)

    def get_urls(self) -> list[URLPattern]:
        """Besides the usual ones: the end of a log, the job of an attempt that holds something, what would fit now."""
        wrap = self.admin_site.admin_view
        return [
            path("of-attempt/<uuid:holder>/", wrap(self.of_attempt), name="jobs_job_of_attempt"),
            path("would-fit/<int:pk>/", wrap(would_fit(self)), name="jobs_job_would_fit"),
            path("<int:pk>/log/<str:stream>/", wrap(self.log), name="jobs_job_log"),
            *super().get_urls(),
        ]

    def of_attempt(self, request: HttpRequest, holder: UUID) -> HttpResponse:
        """To the page of the job whose attempt has this id."""
        job = get_object_or_404(Job.objects.only("pk"), attempts__public_id=holder)
        return redirect(reverse("admin:jobs_job_change", args=[job.pk]))

    def log(self, request: HttpRequest, pk: int, stream: str) -> HttpResponse:
        """The end of a stream as it is now."""
        if not self.has_view_permission(request) or stream not in Stream.values:
            raise Http404
        return HttpResponse(pages.log(get_object_or_404(Job, pk=pk), Stream(stream)))

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Ask each selected job that is not final to stop; the account pays nothing for it."""
        jobs = list(queryset.exclude(status__in=FINAL))
        for job in jobs:
            cancel(job, request.user.get_username(), operator=True)
        messages.success(request, f"{len(jobs)} jobs cancelled or asked to stop.")

    @action(
        description="Cancel job",
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
        by = request.user.get_username()
        return perform(
            self,
            request,
            object_id,
            lambda job: cancel(job, by, operator=True),
            "cancelled, or asked to stop",
        )

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("jobs.change_job")
