"""Bindings for the operator: to look at, and to revoke."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from compute_site.core.admin import ReadOnlyAdmin, perform
from compute_site.core.db import ClockTimestamp
from compute_site.core.showing import DASH, ago, pairs
from workers.fleet import registration
from workers.fleet.admin import pages
from workers.fleet.admin.owners import OwnerFilter
from workers.fleet.models import Binding, RemoteWorker

COLOURS = {"valid": "success", "expired": "default", "revoked": "danger"}


@admin.register(Binding)
class BindingAdmin(ReadOnlyAdmin):
    """Read-only list and detail; a binding can be revoked, who did it and when is in its history."""

    list_display = ["name", "state", "owner", "until", "age"]
    list_filter = [("owner_key__owner", OwnerFilter)]
    list_select_related = ["owner_key__owner__account"]
    search_fields = ["worker_key", "serial", "owner_key__key", "owner_key__owner__account__name"]
    search_help_text = "Any part of a key, of the serial or of the owner's name."
    actions_detail = ["revoke"]
    fieldsets = [
        (None, {"fields": ["standing", "owner", "owner_key", "worker", "worker_key", "serial"]}),
        ("Life", {"fields": ["created_at", "not_after", "revoked_at"]}),
        ("As signed", {"fields": ["statement_told", "signature"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Binding]:
        rows: QuerySet[Binding] = super().get_queryset(request)
        return rows.annotate(clock=ClockTimestamp())

    @display(description="binding", ordering="pk")
    def name(self, binding: Binding) -> str:
        return f"{binding.worker_key[:20]}… #{binding.serial}"

    @display(description="state", label=COLOURS)
    def state(self, binding: Any) -> str:
        return self.standing(binding)

    @display(description="state")
    def standing(self, binding: Any) -> str:
        if binding.revoked_at is not None:
            return "revoked"
        return "valid" if binding.not_after > binding.clock else "expired"

    @display(description="owner", ordering="owner_key__owner")
    def owner(self, binding: Binding) -> str:
        return pages.link(binding.owner_key.owner)

    @display(description="until", ordering="not_after")
    def until(self, binding: Binding) -> str:
        return ago(binding.not_after)

    @display(description="age", ordering="created_at")
    def age(self, binding: Binding) -> str:
        return ago(binding.created_at)

    @display(description="let in by it now")
    def worker(self, binding: Binding) -> str:
        found = RemoteWorker.objects.filter(binding=binding).first()
        return pages.link(found) if found else DASH

    @display(description="statement")
    def statement_told(self, binding: Binding) -> str:
        return pairs(binding.statement)

    @action(
        description="Revoke",
        permissions=["revoke"],
        dialog={
            "title": "Revoke this binding for ever?",
            "description": "Nothing that its worker sends is taken any more; its owner may sign another binding for it.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Revoke the binding",
        },
    )
    def revoke(self, request: HttpRequest, form: BaseDialogForm, object_id: int) -> HttpResponse:
        """The next request of its worker is refused; what it holds goes to others once it is stale."""
        return perform(self, request, object_id, registration.revoke, "revoked")

    def has_revoke_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("fleet.change_binding")
