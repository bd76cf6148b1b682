"""Accounts, pods and orphans for the operator. A key goes in and never comes out."""

from collections.abc import Iterable
from decimal import ROUND_UP, Decimal
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminPasswordToggleWidget

from compute_site.core.admin import EditedAdmin, EditedForm, ReadOnlyAdmin, perform
from compute_site.core.db import ClockTimestamp, database_now
from compute_site.core.showing import DASH, ago, pairs, pill, table, when
from environments.admin.pictures import bar
from providers.budgets import cost_so_far, figures, hourly_rate, plain
from providers.ending import ask_end
from providers.models import FINAL, Orphan, Pod, PodStatus, ProviderAccount

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

    class Meta:
        help_texts = {"kind": "Whose API it speaks; the key belongs to an account there."}

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
    list_display = ["name", "kind", "enabled", "with_key", "today", "this_month", "max_pods", "trouble_told"]
    search_fields = ["name"]
    readonly_fields = [
        "with_key",
        "today",
        "this_month",
        when("listed_at", "last good listing"),
        "trouble_told",
    ]
    fieldsets = [
        (None, {"fields": ["name", "kind", "base_url", "key", "with_key", "enabled", "seen_version"]}),
        ("Budget", {"fields": ["daily_cap", "monthly_cap", "max_pods", "accepts_no_provider_clock"]}),
        ("Now", {"fields": readonly_fields[1:]}),
    ]

    def save_model(self, request: HttpRequest, obj: ProviderAccount, form: Any, change: bool) -> None:
        """Saves, and seals a key that was entered."""
        super().save_model(request, obj, form, change)
        if key := form.cleaned_data.get("key"):
            obj.set_key(key)

    @display(description="has a key", boolean=True)
    def with_key(self, account: ProviderAccount) -> bool:
        return account.has_key

    @display(description="trouble", ordering="trouble")
    def trouble_told(self, account: ProviderAccount) -> str:
        return account.trouble or "none"

    @display(description="today (USD)")
    def today(self, account: ProviderAccount) -> str:
        return self._period(account, 0)

    @display(description="this month (USD)")
    def this_month(self, account: ProviderAccount) -> str:
        return self._period(account, 1)

    def _period(self, account: ProviderAccount, number: int) -> str:
        if account.pk is None:
            return DASH
        if not hasattr(account, "periods"):
            give_figures([account])
        told = account.periods[number]  # type: ignore[attr-defined]
        words = (
            f"{dollars(told.committed)} of {plain(told.cap)} committed, {dollars(told.spent)} spent at most"
        )
        return bar(float(told.committed), float(told.cap), words)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The rows of one page, with the figures of all of them."""
        page = super().get_changelist_instance(request)
        give_figures(page.result_list)
        return page

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An account with pods is switched off, not deleted: the rows are what finds its pods again."""
        return super().has_delete_permission(request, obj) and not (obj and obj.pods.exists())


class TerminateForm(BaseDialogForm):
    """Says what the pod cost so far, and what it would cost until its deadline."""

    def render_before_template(self) -> str:
        """Unfold's place above the buttons."""
        pod = Pod.objects.filter(pk=self.object_id).first()
        if pod is None:
            return ""
        return format_html(
            "<p><b>{}</b> cost at most {} USD so far; each further hour costs at most {} USD.</p>",
            pod.name,
            dollars(cost_so_far(pod, database_now())),
            plain(hourly_rate(pod)),
        )


@admin.register(Pod)
class PodAdmin(ReadOnlyAdmin):
    """Rented machines; read-only but for their end."""

    list_display = [
        *("name", "state", "account", "gpus", "price", "cost", when("deadline")),
        *(when("alarm_at", "will not die since"), "ended_by"),
    ]
    list_filter = ["status", "account", "end_reason"]
    list_filter_submit = True
    list_select_related = ["account"]
    search_fields = ["name", "public_id", "provider_id"]
    actions = ["terminate_pods"]
    actions_detail = ["terminate_pod"]
    fieldsets = [
        (
            None,
            {"fields": ["name", "standing", "account", "gpus", "price", "cost", "most", when("deadline")]},
        ),
        (
            "End",
            {
                "fields": [
                    *("ended_by", when("end_asked_at", "end asked"), "terminate_calls"),
                    *(when("terminate_after", "next try"), when("alarm_at", "will not die since")),
                    *(when("finished_at"), "absent_answers"),
                ]
            },
        ),
        ("At the provider", {"fields": ["provider_id", "told", when("seen_at", "last seen"), "error"]}),
        ("Asked", {"fields": ["requested_by", "lifetime_hours", "wanted", "public_id"]}),
        ("History", {"fields": ["history"]}),
    ]
    readonly_fields: list[Any] = flatten_fieldsets(cast(Any, fieldsets))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pod]:
        """With the database's clock, by which costs are told."""
        return super().get_queryset(request).select_related("account").annotate(clock=ClockTimestamp())

    @display(description="state", ordering="status", label=COLOURS)
    def state(self, pod: Pod) -> tuple[str, str]:
        return pod.status, f"{pod.status} · will not die" if pod.alarm_at and not pod.is_final else pod.status

    @display(description="state")
    def standing(self, pod: Pod) -> str:
        return pill(COLOURS, self.state(pod))

    @display(description="GPUs")
    def gpus(self, pod: Pod) -> str:
        return f"{pod.gpu_count} {pod.spec.get('gpu_type', '')}".strip()

    @display(description="USD per hour")
    def price(self, pod: Pod) -> str:
        told = DASH if pod.price_per_hour is None else plain(pod.price_per_hour)
        return f"{told} (cap {plain(pod.allowed_per_hour)})"

    @display(description="USD at most so far")
    def cost(self, pod: Pod) -> str:
        return dollars(cost_so_far(pod, pod.clock))  # type: ignore[attr-defined]

    @display(description="USD at most until its deadline")
    def most(self, pod: Pod) -> str:
        return f"{plain(pod.committed_cost)} ({plain(pod.price_cap)} per GPU and hour)"

    @display(description="end reason", ordering="end_reason")
    def ended_by(self, pod: Pod) -> str:
        return pod.end_reason.replace("_", " ") or DASH

    @display(description="last error")
    def error(self, pod: Pod) -> str:
        return pod.last_error or DASH

    @display(description="what was asked")
    def wanted(self, pod: Pod) -> str:
        return pairs(pod.spec)

    @display(description="history")
    def history(self, pod: Pod) -> str:
        rows = (
            (ago(event.created_at), event.kind.replace("_", " "), event.message) for event in pod.events.all()
        )
        return table(["when", "what", ""], rows)

    @admin.action(description="Terminate selected pods", permissions=["end"])
    def terminate_pods(self, request: HttpRequest, queryset: QuerySet[Pod]) -> None:
        """Ask for the end of each that is not over."""
        pods = list(queryset.exclude(status__in=FINAL))
        for pod in pods:
            ask_end(pod, "operator")
        now = database_now()
        cost = sum((cost_so_far(pod, now) for pod in pods), Decimal(0))
        messages.success(
            request, f"{len(pods)} pods are being ended; they cost at most {dollars(cost)} USD so far."
        )

    @action(
        description="Terminate",
        permissions=["end"],
        dialog={
            "title": "Terminate this pod?",
            "description": "Whatever runs on it is lost. It is pursued until the provider's listing lacks it.",
            "form_class": TerminateForm,
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
        *("name", "account", "provider_id", "price", when("first_seen_at", "first seen"), "terminate_calls"),
        when("gone_at", "gone"),
    ]
    list_select_related = ["account"]
    fields = [*list_display, "absent_answers", "error"]
    readonly_fields = fields

    @display(description="USD per hour", ordering="price_per_hour")
    def price(self, orphan: Orphan) -> str:
        return DASH if orphan.price_per_hour is None else plain(orphan.price_per_hour)

    @display(description="last error")
    def error(self, orphan: Orphan) -> str:
        return orphan.last_error or DASH


def dollars(amount: Decimal) -> str:
    """USD to the cent, rounded up: a cost is never told too low."""
    return f"{amount.quantize(Decimal('0.01'), rounding=ROUND_UP)}"


def give_figures(accounts: Iterable[ProviderAccount]) -> None:
    """Give each account its `periods`: today's and this month's figures."""
    rows = list(accounts)
    found = figures(rows, database_now())
    for account in rows:
        account.periods = found[account.pk]  # type: ignore[attr-defined]
