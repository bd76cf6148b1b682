"""The fleet for the operator: to look at; retiring a worker is the one action."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display

from compute_site.core.admin import ReadOnlyAdmin
from compute_site.core.db import database_now
from workers.fleet.models import Audit, Fault, FleetPolicy, Owner, OwnerKey, RemoteWorker, Replica, Unit
from workers.fleet.registration import retire, status_now

COLOURS = {
    **{"pending": "default", "waiting": "default", "assigned": "info", "running": "info"},
    **{"active": "success", "reported": "success", "completed": "success"},
    **{"stale": "warning", "failed": "warning", "disputed": "danger", "retired": "default"},
}


class KeyInline(TabularInline):
    """An owner's public keys."""

    model = OwnerKey
    extra = 0
    fields = ["key", "revoked_at"]


@admin.register(Owner)
class OwnerAdmin(ModelAdmin):
    """Owners are entered by the operator: an account and its keys."""

    list_display = ["account", "created_at"]
    inlines = [KeyInline]


@admin.register(FleetPolicy)
class PolicyAdmin(ModelAdmin):
    """How the fleet serves an environment."""

    list_display = ["environment", "replicas", "audit_environment", "lease"]


@admin.register(RemoteWorker)
class RemoteWorkerAdmin(ReadOnlyAdmin):
    """Read-only list and detail; workers can be retired."""

    list_display = ["short_id", "owner", "state", "provider", "slots", "heartbeat_at", "version"]
    list_filter = ["status", "owner"]
    list_select_related = ["owner__account"]
    search_fields = ["public_id", "key"]
    actions = ["retire_selected"]

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, worker: RemoteWorker) -> str:
        return status_now(worker, database_now())

    @admin.action(description="Retire for ever")
    def retire_selected(self, request: HttpRequest, rows: QuerySet[RemoteWorker]) -> None:
        """The same function as the owner's route."""
        if not request.user.has_perm("fleet.change_remoteworker"):
            self.message_user(request, "You may not retire workers.", messages.ERROR)
            return
        count = sum(retire(worker) for worker in rows)
        self.message_user(request, f"{count} retired.", messages.SUCCESS)


class ReplicaInline(TabularInline):
    """The replicas of a unit."""

    model = Replica
    extra = 0
    can_delete = False
    fields = ["number", "status", "worker", "tries", "manifest_sha256", "failure"]
    readonly_fields = fields


@admin.register(Unit)
class UnitAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = ["short_id", "state", "environment", "wanted", "degraded", "waits_for", "created_at"]
    list_filter = ["status", "environment"]
    list_select_related = ["environment__engine"]
    search_fields = ["public_id", "attempt__job__public_id"]
    inlines = [ReplicaInline]

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, unit: Unit) -> str:
        return unit.status


@admin.register(Audit)
class AuditAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = ["short_id", "unit", "job", "status", "created_at", "finished_at"]
    list_filter = ["status"]


@admin.register(Fault)
class FaultAdmin(ReadOnlyAdmin):
    """Read-only list and detail."""

    list_display = ["worker", "unit", "found", "expected", "created_at"]
    list_filter = ["worker"]
