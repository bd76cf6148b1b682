"""Owners, policies and remote workers for the operator: the first two are entered, workers can be retired."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from unfold.admin import TabularInline
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from compute_site.core.admin import ReadOnlyAdmin, RefusingAdmin, perform
from compute_site.core.db import ClockTimestamp, database_now
from compute_site.core.showing import DASH, ago, pairs
from workers.fleet import registration
from workers.fleet.admin import pages
from workers.fleet.admin.retire import disable_page, retire_page
from workers.fleet.models import FleetPolicy, Owner, OwnerKey, RemoteStatus, RemoteWorker

# Waiting is not red; a worker that was retired is history.
WORKER_COLOURS = {
    RemoteStatus.PENDING: "info",
    RemoteStatus.ACTIVE: "success",
    RemoteStatus.STALE: "warning",
    RemoteStatus.RETIRED: "default",
}


class OwnerFilter(admin.RelatedFieldListFilter):
    """For lists of what belongs to owners: reads their accounts, which name them, with them."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[Any]:
        """As Django's, in one statement."""
        rows = Owner.objects.select_related("account").order_by("account__name")
        return [(row.pk, str(row)) for row in rows]


class KeyInline(TabularInline):
    """An owner's public keys."""

    model = OwnerKey
    extra = 0
    fields = ["key", "revoked_at"]
    verbose_name = "public key"


@admin.register(Owner)
class OwnerAdmin(RefusingAdmin):
    """Owners are entered by the operator: an account and its keys."""

    list_display = ["account", "active", "faults", "age"]
    list_select_related = ["account"]
    search_fields = ["account__name", "keys__key"]
    fields = ["account", "all_workers"]
    readonly_fields = ["all_workers"]
    inlines = [KeyInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Owner]:
        alive = Q(workers__in=registration.active_workers(database_now()))
        counts = {"alive": Count("workers", filter=alive, distinct=True), "wrong": Count("workers__faults")}
        rows: QuerySet[Owner] = super().get_queryset(request)
        return rows.annotate(**counts)

    @display(description="active workers", ordering="alive")
    def active(self, owner: Any) -> int:
        return int(owner.alive)

    @display(description="faults", ordering="wrong")
    def faults(self, owner: Any) -> int:
        return int(owner.wrong)

    @display(description="age", ordering="created_at")
    def age(self, owner: Owner) -> str:
        return ago(owner.created_at)

    @display(description="workers")
    def all_workers(self, owner: Owner) -> str:
        return pages.workers(owner.workers.all(), database_now()) if owner.pk else DASH


@admin.register(FleetPolicy)
class PolicyAdmin(RefusingAdmin):
    """How the fleet serves an environment."""

    list_display = ["environment", "replicas", "tries", "waits", "accept_degraded", "audit_environment"]
    list_select_related = ["environment__engine", "audit_environment__engine"]

    def get_urls(self) -> list[URLPattern]:
        """Besides the usual ones: buttons of environments and engines whose pages have to know the fleet."""
        wrap = self.admin_site.admin_view
        return [
            path("retire/<int:pk>/", wrap(retire_page), name="fleet_retire"),
            path("disable/<int:pk>/", wrap(disable_page), name="fleet_disable"),
            *super().get_urls(),
        ]

    @display(description="tries", ordering="max_attempts")
    def tries(self, policy: FleetPolicy) -> str:
        return f"{policy.max_attempts}, each lost after {policy.lease} s of silence"

    @display(description="degrades after", ordering="degrade_after")
    def waits(self, policy: FleetPolicy) -> str:
        return f"{policy.degrade_after} s"


@admin.register(RemoteWorker)
class RemoteWorkerAdmin(ReadOnlyAdmin):
    """Read-only list and detail; workers can be retired, by the same function as the owner's route."""

    list_display = ["name", "state", "of", "provider", "slots", "held", "wrong", "seen"]
    list_filter = ["status", ("owner", OwnerFilter)]
    list_select_related = ["owner__account"]
    search_fields = ["public_id", "key", "owner__account__name"]
    actions = ["retire_selected"]
    actions_detail = ["retire_one"]
    fieldsets = [
        (
            None,
            {"fields": ["public_id", "standing", "of", "capabilities_told", "slots", "provider", "instance"]},
        ),
        ("Life", {"fields": ["registered_at", "heartbeat_at", "retired_at"]}),
        ("Its machine, by its last heartbeat", {"fields": ["version", "health_told", "devices_told"]}),
        ("Key", {"fields": ["key", "bound_until"]}),
        ("Replicas, the newest first", {"fields": ["replicas_told"]}),
        ("Faults", {"fields": ["faults_told"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RemoteWorker]:
        working = Q(replicas__status__in=["assigned", "running"])
        rows: QuerySet[RemoteWorker] = super().get_queryset(request)
        return rows.annotate(
            clock=ClockTimestamp(),  # with the rows: asked for each it would be a statement each
            at_work=Count("replicas", filter=working, distinct=True),
            fault_count=Count("faults", distinct=True),
        )

    @display(description="worker", ordering="pk")
    def name(self, worker: RemoteWorker) -> str:
        return worker.short_id

    @display(description="state", ordering="status", label=WORKER_COLOURS)
    def state(self, worker: Any) -> str:
        return registration.status_now(worker, worker.clock)

    @display(description="state")
    def standing(self, worker: Any) -> str:
        return registration.status_now(worker, worker.clock)

    @display(description="owner", ordering="owner")
    def of(self, worker: RemoteWorker) -> str:
        return pages.link(worker.owner)

    @display(description="at work on", ordering="at_work")
    def held(self, worker: Any) -> int:
        return int(worker.at_work)

    @display(description="faults", ordering="fault_count")
    def wrong(self, worker: Any) -> int:
        return int(worker.fault_count)

    @display(description="last seen", ordering="heartbeat_at")
    def seen(self, worker: RemoteWorker) -> str:
        return ago(worker.heartbeat_at)

    @display(description="may be given")
    def capabilities_told(self, worker: RemoteWorker) -> str:
        return pages.capabilities(worker)

    @display(description="what is wrong")
    def health_told(self, worker: RemoteWorker) -> str:
        return pairs(worker.health)

    @display(description="devices")
    def devices_told(self, worker: RemoteWorker) -> str:
        return pages.devices(worker)

    @display(description="bound until")
    def bound_until(self, worker: RemoteWorker) -> str:
        return f"{worker.binding.not_after:%Y-%m-%d %H:%M} UTC, by the binding with serial {worker.binding.serial}"

    @display(description="replicas")
    def replicas_told(self, worker: RemoteWorker) -> str:
        return pages.replicas_of_worker(worker)

    @display(description="faults")
    def faults_told(self, worker: RemoteWorker) -> str:
        return pages.faults(worker.faults.select_related("worker", "unit"))

    @admin.action(description="Retire for ever", permissions=["retire"])
    def retire_selected(self, request: HttpRequest, rows: QuerySet[RemoteWorker]) -> None:
        """What they hold is given to others by the next pass."""
        count = sum(registration.retire(worker) for worker in rows)
        self.message_user(request, f"{count} retired.", messages.SUCCESS)

    @action(
        description="Retire",
        permissions=["retire"],
        dialog={
            "title": "Retire this worker for ever?",
            "description": "Its agent ends, its key is never let in again, and others get what it holds.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Retire the worker",
        },
    )
    def retire_one(self, request: HttpRequest, form: BaseDialogForm, object_id: int) -> HttpResponse:
        """The same for one worker."""
        return perform(self, request, object_id, registration.retire, "retired")

    def has_retire_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("fleet.change_remoteworker")
