"""Units, audits and faults for the operator: to look at."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from compute_site.core.admin import ReadOnlyAdmin
from compute_site.core.showing import ago
from environments.admin.environment_filter import EnvironmentFilter
from workers.fleet.admin import pages
from workers.fleet.admin.owners import OwnerFilter
from workers.fleet.models import Audit, AuditStatus, Fault, Unit, UnitStatus

UNIT_COLOURS = {
    UnitStatus.PENDING: "info",
    UnitStatus.ASSIGNED: "info",
    UnitStatus.COMPLETED: "success",
    UnitStatus.DISPUTED: "danger",
    UnitStatus.FAILED: "danger",
    UnitStatus.CANCELLED: "warning",
}
AUDIT_COLOURS = {
    AuditStatus.PENDING: "info",
    AuditStatus.PASSED: "success",
    AuditStatus.RESOLVED: "success",
    AuditStatus.FAILED: "danger",
}


@admin.register(Unit)
class UnitAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = ["name", "state", "job", "environment", "results", "waits_for", "age"]
    list_filter = ["status", ("environment", EnvironmentFilter)]
    list_select_related = ["environment__engine", "attempt__job"]
    search_fields = ["public_id", "attempt__job__public_id"]
    search_help_text = "Id of the unit or of its job, or any part of it."
    fieldsets = [
        (None, {"fields": ["public_id", "standing", "job", "environment", "results", "waits_for"]}),
        ("Replicas", {"fields": ["replicas_told", "progress_told", "lapses_told"]}),
        ("Audit", {"fields": ["audit_told", "faults_told"]}),
        ("Times", {"fields": ["created_at", "finished_at", "manifest_sha256"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Unit]:
        rows: QuerySet[Unit] = super().get_queryset(request)
        return rows.annotate(reported=Count("replicas", filter=Q(replicas__status="reported")))

    @display(description="unit", ordering="pk")
    def name(self, unit: Unit) -> str:
        return unit.short_id

    @display(description="state", ordering="status", label=UNIT_COLOURS)
    def state(self, unit: Unit) -> tuple[str, str]:
        return unit.status, self.standing(unit)

    @display(description="state")
    def standing(self, unit: Unit) -> str:
        return f"{unit.status} · degraded" if unit.degraded else unit.status

    @display(description="job", ordering="attempt__job")
    def job(self, unit: Unit) -> str:
        return pages.job_link(unit.attempt.job)

    @display(description="results", ordering="reported")
    def results(self, unit: Any) -> str:
        return f"{unit.reported} of {unit.wanted}"

    @display(description="age", ordering="created_at")
    def age(self, unit: Unit) -> str:
        return ago(unit.created_at)

    @display(description="replicas")
    def replicas_told(self, unit: Unit) -> str:
        return pages.replicas_of_unit(unit)

    @display(description="progress, by the workers' word")
    def progress_told(self, unit: Unit) -> str:
        return pages.progress_of_unit(unit)

    @display(description="lost or failed")
    def lapses_told(self, unit: Unit) -> str:
        return pages.lapses_of_unit(unit)

    @display(description="audit")
    def audit_told(self, unit: Unit) -> str:
        return pages.audit_of_unit(unit)

    @display(description="faults")
    def faults_told(self, unit: Unit) -> str:
        return pages.faults(unit.faults.select_related("worker", "unit"))


@admin.register(Audit)
class AuditAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = ["of", "state", "runs_as", "result", "age"]
    list_display_links = ["age"]
    list_filter = ["status"]
    list_select_related = ["unit", "job__environment__engine"]
    fields = ["of", "standing", "runs_as", "manifest_sha256", "created_at", "finished_at"]

    @display(description="unit", ordering="unit")
    def of(self, audit: Audit) -> str:
        return pages.link(audit.unit)

    @display(description="outcome", ordering="status", label=AUDIT_COLOURS)
    def state(self, audit: Audit) -> tuple[str, str]:
        return audit.status, audit.get_status_display()

    @display(description="outcome")
    def standing(self, audit: Audit) -> str:
        return audit.get_status_display()

    @display(description="its job", ordering="job")
    def runs_as(self, audit: Audit) -> str:
        return pages.link(audit.job, f"{audit.job.short_id} in {audit.job.environment}")

    @display(description="result")
    def result(self, audit: Audit) -> str:
        return pages.digest(audit.manifest_sha256)

    @display(description="age", ordering="created_at")
    def age(self, audit: Audit) -> str:
        return ago(audit.created_at)


@admin.register(Fault)
class FaultAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = ["of", "owner", "in_unit", "wrong", "right", "age"]
    list_display_links = ["age"]
    list_filter = [("worker__owner", OwnerFilter)]
    list_select_related = ["worker__owner__account", "unit"]
    fields = ["of", "owner", "in_unit", "found", "expected", "created_at"]

    @display(description="worker", ordering="worker")
    def of(self, fault: Fault) -> str:
        return pages.link(fault.worker)

    @display(description="owner", ordering="worker__owner")
    def owner(self, fault: Fault) -> str:
        return pages.link(fault.worker.owner)

    @display(description="unit", ordering="unit")
    def in_unit(self, fault: Fault) -> str:
        return pages.link(fault.unit)

    @display(description="found")
    def wrong(self, fault: Fault) -> str:
        return pages.digest(fault.found)

    @display(description="expected")
    def right(self, fault: Fault) -> str:
        return pages.digest(fault.expected)

    @display(description="age", ordering="created_at")
    def age(self, fault: Fault) -> str:
        return ago(fault.created_at)
