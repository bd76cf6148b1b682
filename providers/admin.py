"""Accounts, pods and orphans for the operator. A key goes in and never comes out."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminPasswordToggleWidget

from compute_site.core.admin import EditedAdmin, EditedForm, ReadOnlyAdmin, perform
from compute_site.core.db import database_now
from providers.budgets import committed, cost_so_far, periods, plain, spent
from providers.ending import ask_end
from providers.models import FINAL, Orphan, Pod, PodStatus, ProviderAccount

DASH = "—"
COLOURS = {
    PodStatus.INTENT: "info",
    PodStatus.REQUESTED: "info",
    PodStatus.UNKNOWN: "warning",
    PodStatus.PROVISIONING: "info",
    PodStatus.RUNNING: "success",
    PodStatus.TERMINATING: "warning",
    PodStatus.TERMINATED: "default",
    PodStatus.FAILED: "danger",
}


class ProviderAccountForm(EditedForm):
    """The key is a field of the form only: empty leaves the stored one."""

    key = forms.CharField(
        required=False,
        widget=UnfoldAdminPasswordToggleWidget(render_value=False, attrs={"autocomplete": "new-password"}),
        help_text="Stored sealed and never shown. Empty = unchanged.",
    )

    def clean(self) -> dict[str, Any]:
        """A key goes only where it was entered for: a new address needs it again."""
        cleaned = super().clean()
        moved = self.instance.pk is not None and {"base_url", "kind"} & set(self.changed_data)
        if moved and self.instance.has_key and not cleaned.get("key"):
            self.add_error("key", "The key would be sent somewhere else from now on: enter it again.")
        return cleaned


@admin.register(ProviderAccount)
class ProviderAccountAdmin(EditedAdmin):
    """Accounts at providers and their budgets."""

    form = ProviderAccountForm
    list_display = ["name", "kind", "enabled", "with_key", "today", "this_month", "max_pods", "trouble"]
    search_fields = ["name"]
    readonly_fields = ["with_key", "today", "this_month", "listed_at", "trouble"]
    fieldsets = [
        (None, {"fields": ["name", "kind", "base_url", "key", "with_key", "enabled", "seen_version"]}),
        ("Budget", {"fields": ["daily_cap", "monthly_cap", "max_pods", "accepts_no_provider_clock"]}),
        ("Now", {"fields": ["today", "this_month", "listed_at", "trouble"]}),
    ]

    def save_model(self, request: HttpRequest, obj: ProviderAccount, form: Any, change: bool) -> None:
        """Saves, and seals a key that was entered."""
        super().save_model(request, obj, form, change)
        if key := form.cleaned_data.get("key"):
            obj.set_key(key)

    @display(description="has a key", boolean=True)
    def with_key(self, account: ProviderAccount) -> bool:
        return account.has_key

    @display(description="today (USD)")
    def today(self, account: ProviderAccount) -> str:
        return self._period(account, 0)

    @display(description="this month (USD)")
    def this_month(self, account: ProviderAccount) -> str:
        return self._period(account, 1)

    def _period(self, account: ProviderAccount, number: int) -> str:
        if account.pk is None:
            return DASH
        now = database_now()
        _, start, cap = periods(account, now)[number]
        taken, cost = committed(account, start, now), spent(account, start, now)
        return f"{plain(taken)} of {plain(cap)} committed, at most {plain(cost)} spent"

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An account with pods is switched off, not deleted: the rows are what finds its pods again."""
        return super().has_delete_permission(request, obj) and not (obj and obj.pods.exists())


@admin.register(Pod)
class PodAdmin(ReadOnlyAdmin):
    """Rented machines; read-only but for their end."""

    list_display = ["name", "state", "account", "gpus", "price", "cost", "deadline", "alarm_at", "end_reason"]
    list_filter = ["status", "account", "end_reason"]
    list_filter_submit = True
    list_select_related = ["account"]
    search_fields = ["name", "public_id", "provider_id"]
    actions = ["terminate_pods"]
    actions_detail = ["terminate_pod"]
    fields = [
        *("public_id", "name", "account", "status", "told", "end_reason", "last_error", "provider_id"),
        *("gpus", "price_cap", "price", "lifetime_hours", "committed_cost", "cost", "created_at"),
        *("requested_at", "running_at", "deadline", "seen_at", "absent_answers", "end_asked_at"),
        *("terminate_calls", "terminate_after", "alarm_at", "finished_at", "history"),
    ]
    readonly_fields = fields

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, pod: Pod) -> tuple[str, str]:
        return pod.status, f"{pod.status} · will not die" if pod.alarm_at and not pod.is_final else pod.status

    @display(description="GPUs")
    def gpus(self, pod: Pod) -> str:
        return f"{pod.gpu_count} {pod.spec.get('gpu_type', '')}".strip()

    @display(description="USD per hour")
    def price(self, pod: Pod) -> str:
        told = DASH if pod.price_per_hour is None else plain(pod.price_per_hour)
        return f"{told} (cap {plain(pod.allowed_per_hour)})"

    @display(description="USD at most so far")
    def cost(self, pod: Pod) -> str:
        return plain(cost_so_far(pod, database_now()))

    @display(description="history")
    def history(self, pod: Pod) -> str:
        rows = (
            (event.created_at.isoformat(" ", "seconds"), event.kind, event.message)
            for event in pod.events.all()
        )
        return format_html_join("", "<div>{} · {} · {}</div>", rows) or DASH

    @admin.action(description="Terminate selected pods", permissions=["end"])
    def terminate_pods(self, request: HttpRequest, queryset: QuerySet[Pod]) -> None:
        """Ask for the end of each that is not over."""
        pods = list(queryset.exclude(status__in=FINAL))
        for pod in pods:
            ask_end(pod, "operator")
        messages.success(request, f"{len(pods)} pods are being ended.")

    @action(
        description="Terminate",
        permissions=["end"],
        dialog={
            "title": "Terminate this pod?",
            "description": "Whatever runs on it is lost. It is pursued until the provider's listing lacks it.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Terminate the pod",
        },
    )
    def terminate_pod(self, request: HttpRequest, form: BaseDialogForm, object_id: int) -> HttpResponse:
        """The same for one pod."""
        return perform(self, request, object_id, lambda pod: ask_end(pod, "operator"), "its end was asked")

    def has_end_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("providers.change_pod")


@admin.register(Orphan)
class OrphanAdmin(ReadOnlyAdmin):
    """Pods of ours that no row knows; they are ended by themselves."""

    list_display = [
        "name",
        "account",
        "provider_id",
        "price_per_hour",
        "first_seen_at",
        "terminate_calls",
        "gone_at",
    ]
    list_select_related = ["account"]
    fields = [*list_display, "absent_answers", "last_error"]
