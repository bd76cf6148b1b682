"""Environments: one page for everything that is offered, saved whole or not at all."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from compute_site.core.showing import DASH
from environments import editing
from environments.admin.confirming import Step, confirm_page
from environments.admin.constraints import ConstraintInline, save_constraints
from environments.admin.environment_form import EnvironmentForm, in_tabs
from environments.admin.history import author, history, revert_page, to_tab
from environments.admin.import_page import ConfigurationAdmin, export_file, import_page
from environments.admin.jobs_now import jobs_now
from environments.admin.pictures import devices_table, owners_picture, use_bars
from environments.admin.rows import AccessRuleInline, FreeTierInline, PriceListInline, ResourceInline, plain
from environments.admin.saving import save_cores, save_rows
from environments.cpuset import format_cores
from environments.history import find, record
from environments.models import Constraint, Door, Environment, EnvironmentState, PriceList, Resource
from environments.rules import check_environment, size_warnings, totals_above, warnings
from environments.use import free_amounts

STATES = {
    EnvironmentState.ACTIVE: "success",
    EnvironmentState.DRAINING: "info",
    EnvironmentState.RETIRED: "default",
}
NO_HOST = "Its jobs run on the fleet: it has no cores and devices of ours."
DRAIN = Step("Drain", editing.drain, "draining")
DRAINED = ["It takes no new jobs. Those it has, running or queued, are finished."]
RESUME = Step("Resume", editing.resume, "active again")
RESUMED = ["It takes new jobs again."]
NEW_RESOURCES = [{"slug": kind, "kind": kind} for kind in ("cpu", "ram", "disk")]


class EnvironmentAdmin(ConfigurationAdmin):
    """Offers. The state changes by the buttons, so that no form can overwrite it. Registered by the layer that knows jobs."""

    form = EnvironmentForm
    inlines = (ResourceInline, ConstraintInline, FreeTierInline, PriceListInline, AccessRuleInline)
    list_display = ("slug", "engine", "standing", "purpose", "use", "prices")
    list_filter = ("state", "engine")
    list_select_related = ("engine", "free_tier")
    search_fields = ("slug", "description")
    readonly_fields = ("state", "purpose")
    actions_list = ("import_configuration", "export_configuration")
    actions_detail = ("would_fit", "drain", "resume", "retire")
    fieldsets = (
        (None, {"fields": ("engine", "slug", "state", "purpose", "description", "labels", "seen_version")}),
        (
            "Limits",
            {
                "fields": (
                    *("min_job_duration", "max_job_duration", "storage_expiry"),
                    *("max_jobs", "max_queue_wait", "enable_network"),
                )
            },
        ),
        ("Cores", {"fields": ("cores",), "classes": ("tab",)}),
        ("Why", {"fields": ("comment",), "classes": ("tab",)}),
    )

    @display(description="state", ordering="state", label=STATES)
    def standing(self, environment: Environment) -> str:
        """active, draining or retired."""
        return environment.state

    @admin.display(description="cores")
    def cores(self, environment: Environment) -> str:
        """For those who may only read the page: the form's own list of them needs its form."""
        return format_cores(environment.cores.values_list("index", flat=True)) or DASH

    @display(description="purpose", label={"offer": "default", "measures its host": "warning"})
    def purpose(self, environment: Environment) -> str:
        """Whether it is an offer at all."""
        return "measures its host" if environment.benchmark else "offer"

    @admin.display(description="in use")
    def use(self, environment: Environment) -> SafeString | str:
        """A bar for each resource."""
        return use_bars(environment.uses)  # type: ignore[attr-defined]

    @admin.display(description="price per minute")
    def prices(self, environment: Environment) -> SafeString:
        """By currency; and whether there is a free tier."""
        lines = [
            f"{plain(price.per_minute)} {prices.currency} per {price.resource.slug}"
            for prices in environment.price_lists.all()
            for price in prices.prices.all()
            if price.per_minute
        ]
        lines += ["free tier"] if hasattr(environment, "free_tier") else []
        return format_html_join("", "<div>{}</div>", ((line,) for line in lines or ["nobody may use it"]))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Environment]:
        """With the prices of a list's rows."""
        return super().get_queryset(request).prefetch_related("price_lists__prices__resource")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The rows of one page, with what is in use of all of them."""
        page = super().get_changelist_instance(request)
        uses = free_amounts(page.result_list)
        for environment in page.result_list:
            environment.uses = list(uses[environment.pk].values())
        return page

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *arguments: Any, **options: Any
    ) -> HttpResponse:
        """In tabs; beside the fields, who has which core and device, what runs now, and what was changed before."""
        shown: dict[str, SafeString | str] = {}
        obj: Environment | None = options.get("obj")
        if obj is not None:
            host, mine = obj.engine.host, str(obj)
            shown = {
                "cores": owners_picture(host, mine) if host else NO_HOST,
                "devices": devices_table(host, mine) if host else NO_HOST,
                "jobs": jobs_now(obj),
                "history": history(obj, request.user, may_revert=self.has_change_permission(request, obj)),
            }
        context.update(in_tabs(context, shown))
        return super().render_change_form(request, context, *arguments, **options)

    def get_urls(self) -> list[URLPattern]:
        """Besides the usual ones: the way back to an earlier state."""
        view = self.admin_site.admin_view(self.revert)
        return [
            path("<int:pk>/history/<int:edit>/", view, name="environments_environment_revert"),
            *super().get_urls(),
        ]

    def revert(self, request: HttpRequest, pk: int, edit: int) -> HttpResponse:
        """The difference first."""
        return revert_page(self, request, pk, edit)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """It stands on the page itself, with every value."""
        environment = self.get_object(request, object_id)
        if environment is None:
            return super().history_view(request, object_id, extra_context)
        return redirect(to_tab(environment))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """An environment stays on its engine."""
        return (*self.readonly_fields, "engine") if obj else self.readonly_fields

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Who may only look has no use for what a form alone has."""
        if obj is None or self.has_change_permission(request, obj):
            return self.fieldsets
        (title, general), *others, _ = self.fieldsets
        shown = [name for name in general["fields"] if name != "seen_version"]
        return ((title, {"fields": shown}), *others)

    def get_formset_kwargs(self, request: HttpRequest, obj: Any, inline: Any, prefix: str) -> dict[str, Any]:
        """A new environment starts with rows for cpu, ram and disk."""
        options = super().get_formset_kwargs(request, obj, inline, prefix)
        if isinstance(inline, ResourceInline) and obj.pk is None:
            options["initial"] = NEW_RESOURCES
        return options

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """One that measures its host follows the engine's switch and the settings, so its page is to be read only."""
        return not getattr(obj, "benchmark", False) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Once a job ran there, an environment is retired instead."""
        if obj is None or obj.benchmark or obj.reservations.exists():
            return False
        return super().has_delete_permission(request, obj)

    def lock_before_saving(self, obj: Environment) -> None:
        """An edit must not race with a reservation."""
        if obj.pk is not None:
            editing.lock_for_edit(obj)
            find(obj)
        elif obj.engine.host_id is None:
            raise ValidationError({"engine": "A fleet engine has no host to take cores and memory from."})
        else:
            editing.lock_host(obj.engine.host_id)

    def save_model(self, request: HttpRequest, obj: Environment, form: Any, change: bool) -> None:
        """As every edited row; remembers, under the locks, which totals are above the host's size already."""
        super().save_model(request, obj, form, change)
        form.kept = totals_above([obj.pk])

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Constraints wait: they name resources by slug, which all have to be there first."""
        if formset.model is not Constraint:
            super().save_formset(request, form, formset, change)
            return
        formset.save(commit=False)
        for row in formset.deleted_objects:
            row.delete()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Rows, devices, free parts, prices and cores; then every rule, and all is rolled back if one is broken."""
        super().save_related(request, form, formsets, change)
        environment = form.instance
        rows: dict[type, list[Any]] = {Resource: [], PriceList: [], Constraint: []}
        for formset in formsets:
            new = formset.model is Constraint
            kept = [
                row for row in formset.forms if row not in formset.deleted_forms and (new or row.instance.pk)
            ]
            rows.setdefault(formset.model, []).extend(kept)
        text = form.cleaned_data["cores"]
        if environment.engine.host_id is not None:
            named = bool(text) and (not change or "cores" in form.changed_data)
            save_cores(environment, text, named=named, new=not change)
        elif text:
            raise ValidationError({"cores": "Its jobs run on the fleet; leave this empty."})
        save_rows(environment, rows[Resource], rows[PriceList])
        save_constraints(environment, rows[Constraint])
        check_environment(environment, form.kept)
        record(environment, author(request, Door.PAGE, form.cleaned_data["comment"]))
        for warning in [*size_warnings([environment.pk]), *warnings(environment)]:
            messages.warning(request, warning)

    @action(description="Import", permissions=["import"], url_path="import", icon="upload")
    def import_configuration(self, request: HttpRequest) -> HttpResponse:
        """A configuration of Ocean Node, plan first."""
        return import_page(self, request)

    @action(description="Export", permissions=["export"], url_path="export", icon="download")
    def export_configuration(self, request: HttpRequest) -> HttpResponse:
        """All Docker engines with their environments, as a file."""
        return export_file()

    @action(description="What would fit now", permissions=["view"], url_path="would-fit")
    def would_fit(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """Asks admission and the queue, which stand above this layer."""
        return redirect(reverse("admin:jobs_job_would_fit", args=[object_id]))

    @action(description="Drain", permissions=["change"])
    def drain(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """active → draining."""
        return confirm_page(self, request, self.get_object(request, str(object_id)), DRAIN, DRAINED)

    @action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """draining → active."""
        return confirm_page(self, request, self.get_object(request, str(object_id)), RESUME, RESUMED)

    @action(description="Retire", permissions=["change"])
    def retire(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """The page knows queued jobs and the fleet, which stand above this layer."""
        return redirect(reverse("admin:fleet_retire", args=[object_id]))
