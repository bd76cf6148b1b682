"""Workers for the operator: to look at. The rows belong to the running processes."""

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from compute_site.core.admin import ReadOnlyAdmin
from compute_site.core.db import database_now
from environments.slots import device_names
from workers.models import Worker, WorkerStatus

# An old row of a worker that was replaced is history, not an alarm.
COLOURS = {
    WorkerStatus.ONLINE: "success",
    WorkerStatus.DRAINING: "info",
    WorkerStatus.STOPPED: "default",
    WorkerStatus.LOST: "warning",
}


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = [
        "name",
        "state",
        "engine",
        "cores",
        "devices",
        "hostname",
        "pid",
        "silent_for",
        "steps",
        "started_at",
    ]
    list_filter = ["status", "engine"]
    list_filter_submit = True
    list_select_related = ["engine", "slots", "superseded_by"]
    search_fields = ["public_id", "hostname"]
    fields = [
        *(
            "public_id",
            "status",
            "engine",
            "cores",
            "devices",
            "hostname",
            "pid",
            "started_at",
            "heartbeat_at",
            "silent_for",
        ),
        *("ended_at", "superseded_by"),
    ]
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        live = Q(engine__attempts__cleaned_at__isnull=True)
        return super().get_queryset(request).annotate(on_hand=Count("engine__attempts", filter=live))

    @display(description="worker", ordering="pk")
    def name(self, worker: Worker) -> str:
        return worker.short_id

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, worker: Worker) -> tuple[str, str]:
        superseded = worker.superseded_by_id and f"{worker.status} · replaced"
        return worker.status, superseded or worker.status

    @display(description="cores")
    def cores(self, worker: Worker) -> str:
        return worker.slots.members.core_text

    @display(description="devices")
    def devices(self, worker: Worker) -> str:
        return device_names(worker.slots.devices)

    @display(description="last heartbeat", ordering="heartbeat_at")
    def silent_for(self, worker: Worker) -> str:
        if worker.ended_at is not None:
            return "—"
        return f"{max(0, int((database_now() - worker.heartbeat_at).total_seconds()))} s ago"

    @display(description="attempts on hand")
    def steps(self, worker: Worker) -> str:
        return str(worker.on_hand) if worker.ended_at is None else "—"  # type: ignore[attr-defined]
