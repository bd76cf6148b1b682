"""Workers for the operator, to look at and to drain, and the images that they brought. The rows are the running site's."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from compute_site.core.admin import ReadOnlyAdmin, perform
from compute_site.core.showing import DASH, ago, link, long, pill, size, table, when
from environments.editing import activate_engine, drain_engine
from environments.models import EngineState
from environments.slots import device_names, uuids_of
from jobs.models import Attempt
from workers.models import Image, ImageScan, Verdict, Worker, WorkerStatus

SHOWN = 50  # attempts on a worker's page

# An old row of a worker that was replaced is history, not an alarm.
COLOURS = {
    WorkerStatus.ONLINE: "success",
    WorkerStatus.DRAINING: "info",
    WorkerStatus.STOPPED: "default",
    WorkerStatus.LOST: "warning",
}


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Read-only list and detail. A worker takes what its engine may start, so draining is the engine's."""

    list_display = [
        *("name", "state", "engine", "cores", "devices", "hostname", "pid", "silent_for", "steps"),
        when("started_at"),
    ]
    list_filter = ["status", "engine"]
    list_filter_submit = True
    search_fields = ["public_id", "hostname"]
    fields = [
        *(
            "public_id",
            "standing",
            "engine",
            "cores",
            "devices",
            "hostname",
            "pid",
            when("started_at"),
            "silent_for",
        ),
        *(when("ended_at"), "superseded_by", "on_hand"),
    ]
    readonly_fields = fields
    actions_detail = ["drain", "resume"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        live = Q(engine__attempts__cleaned_at__isnull=True)
        rows = super().get_queryset(request).select_related("engine", "slots", "superseded_by")
        return rows.annotate(
            attempts_live=Count("engine__attempts", filter=live), device_uuids=uuids_of("slots")
        )

    @display(description="worker", ordering="pk")
    def name(self, worker: Worker) -> str:
        return worker.short_id

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, worker: Worker) -> tuple[str, str]:
        if worker.superseded_by_id:
            return worker.status, f"{worker.status} · replaced"
        held = worker.ended_at is None and worker.engine.state != EngineState.ACTIVE
        return worker.status, f"{worker.status} · engine {worker.engine.state}" if held else worker.status

    @display(description="state")
    def standing(self, worker: Worker) -> str:
        return pill(COLOURS, self.state(worker))

    @display(description="cores")
    def cores(self, worker: Worker) -> str:
        return worker.slots.members.core_text

    @display(description="devices")
    def devices(self, worker: Any) -> str:
        return device_names(worker.slots.devices, worker.device_uuids)

    @display(description="last heartbeat", ordering="heartbeat_at")
    def silent_for(self, worker: Worker) -> str:
        return ago(worker.heartbeat_at)

    @display(description="attempts on hand")
    def steps(self, worker: Worker) -> str:
        return str(worker.attempts_live) if worker.ended_at is None else DASH  # type: ignore[attr-defined]

    @display(description="attempts on hand")
    def on_hand(self, worker: Worker) -> str:
        if worker.ended_at is not None:
            return DASH
        rows = Attempt.objects.filter(engine=worker.engine_id, cleaned_at__isnull=True)
        return table(
            ["job", "attempt", "state", "since", "left over"],
            (
                (link(row.job), row.number, row.status, ago(row.created_at), row.leftover or DASH)
                for row in rows.select_related("job")[:SHOWN]
            ),
        )

    @action(
        description="Drain",
        permissions=["steer"],
        dialog={
            "title": "Drain this worker?",
            "description": "Its engine starts nothing new from now on; what runs goes on to its end.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Drain",
        },
    )
    def drain(self, request: HttpRequest, form: Any, object_id: Any) -> HttpResponse:
        """The engine: active → draining."""
        return perform(self, request, object_id, lambda worker: drain_engine(_live(worker).engine), "drains")

    @action(
        description="Resume",
        permissions=["steer"],
        dialog={
            "title": "Resume this worker?",
            "description": "Its engine starts jobs again. Every environment on it is checked first.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Resume",
        },
    )
    def resume(self, request: HttpRequest, form: Any, object_id: Any) -> HttpResponse:
        """The engine: → active."""
        return perform(
            self, request, object_id, lambda worker: activate_engine(_live(worker).engine), "takes jobs again"
        )

    def has_steer_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It is an edit of the engine."""
        return request.user.has_perm("environments.change_engine")


@admin.register(Image)
class ImageAdmin(ReadOnlyAdmin):
    """What the site brought onto its engines, and removes when nobody uses it. An operator's own images are not here."""

    list_display = [
        "name",
        "engine",
        "came",
        "bytes",
        when("first_seen_at", "came"),
        when("last_used_at", "last used"),
    ]
    list_filter = ["engine", "origin"]
    list_filter_submit = True
    list_select_related = ["engine"]
    search_fields = ["image_id"]
    search_help_text = "The engine's id of an image, any part of it."
    fields = [
        *("engine", "names", "image_id", "origin", "bytes"),
        *(when("first_seen_at"), when("last_used_at", "last used"), "fate"),
    ]
    readonly_fields = fields

    @display(description="image", ordering="pk")
    def name(self, image: Image) -> str:
        return long(image)

    @display(description="how", ordering="origin")
    def came(self, image: Image) -> str:
        return image.get_origin_display()

    @display(description="size", ordering="size")
    def bytes(self, image: Image) -> str:
        return size(image.size)

    @display(description="names")
    def names(self, image: Image) -> str:
        return long(" ".join(image.references))

    @display(description="removal")
    def fate(self, image: Image) -> str:
        if image.removing_until is not None:
            return "being removed"
        return f"when unused for {image.engine.image_retention_days} days, and no container or unfinished job needs it"


@admin.register(ImageScan)
class ImageScanAdmin(ReadOnlyAdmin):
    """What the operator's scanner said, on engines with a scan policy."""

    list_display = ["name", "engine", "found", when("scanned_at", "scanned")]
    list_filter = ["verdict", "engine"]
    list_filter_submit = True
    list_select_related = ["engine"]
    search_fields = ["image_id", "reference"]
    search_help_text = "Name or id of an image, any part of it."
    fields = ["engine", "reference", "image_id", "found", when("scanned_at", "scanned"), "said"]
    readonly_fields = fields

    @display(description="image", ordering="reference")
    def name(self, scan: ImageScan) -> str:
        return long(scan)

    @display(
        description="verdict",
        ordering="verdict",
        label={Verdict.CLEAN: "success", Verdict.FINDINGS: "danger", Verdict.FAILED: "warning"},
    )
    def found(self, scan: ImageScan) -> str:
        return scan.verdict


def _live(worker: Worker) -> Worker:
    if worker.ended_at is not None:
        raise ValidationError("This worker has ended; look for the one that replaced it, or at its engine.")
    return worker
