"""The pages of an import: what it is → the plan → applied, if it is still that plan.

What was shown travels in the page, signed: the site keeps nothing of an import that nobody applies.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core import signing
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from compute_site.core.admin import EditedAdmin
from compute_site.core.errors import NotPermitted
from environments.admin.history import author
from environments.admin.import_form import ImportForm, filled_form
from environments.importing import (
    Choice,
    Plan,
    as_json,
    docker_engines,
    export_engine,
    import_configuration,
    refusal_lines,
)
from environments.models import Door, Engine, Environment
from environments.permissions import may_export, may_import

SALT = "environments.import"
LIFE = 3600  # seconds for which a plan that was shown can be applied
COLOURS = {"created": "success", "changed": "info", "retired": "danger", "activated": "success"}
STALE = "Something was changed since this plan was shown. Nothing was written: look at the plan as it is now."
LOST = "This plan is too old, or not yours. Nothing was written: start again."


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page with a plan was about: the configuration, how to import it, and the plan's fingerprint."""

    configuration: str
    choice: Choice

    def signed(self, request: HttpRequest) -> str:
        """For this user only."""
        told = {"user": request.user.pk, "configuration": self.configuration, "choice": asdict(self.choice)}
        return signing.dumps(told, salt=SALT, compress=True)


class ConfigurationAdmin(EditedAdmin):
    """Rows of which configurations speak: who sees the buttons of import and export, and their pages."""

    def has_import_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Which kinds of rows an import may change shows with its plan."""
        return may_import(request.user)

    def has_export_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An export tells all."""
        return may_export(request.user)


def shown_before(request: HttpRequest) -> Shown | None:
    """What the page that was posted had shown to this user; None if it is too old or was tampered with."""
    try:
        told = signing.loads(request.POST.get("shown", ""), salt=SALT, max_age=LIFE)
    except signing.BadSignature:
        return None
    if told["user"] != request.user.pk:
        return None
    return Shown(told["configuration"], Choice(**told["choice"]))


def import_page(admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """Every step; only `apply` writes."""
    step = request.POST.get("step", "")
    if request.method != "POST":
        return _form_page(admin, request, ImportForm(initial={"engine": request.GET.get("engine")}))
    if step in ("apply", "back"):
        shown = shown_before(request)
        if shown is None:
            messages.error(request, LOST)
            return redirect(request.path)
        if step == "back":
            return _form_page(admin, request, filled_form(shown.configuration, shown.choice))
        return _apply(admin, request, shown)
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return _form_page(admin, request, form)
    return _plan(admin, request, Shown(form.configuration, form.choice))


def export_file(engine: Engine | None = None) -> HttpResponse:
    """The configuration of one engine, or of all, as a download."""
    engines = docker_engines() if engine is None else [engine]
    name = "environments" if engine is None else engine.name
    text = as_json([export_engine(one) for one in engines])
    headers = {"Content-Disposition": f'attachment; filename="{name}.json"'}
    return HttpResponse(text, content_type="application/json", headers=headers)


def _plan(admin: ModelAdmin, request: HttpRequest, shown: Shown) -> HttpResponse:
    try:
        choice = replace(shown.choice, dry_run=True)
        plan = import_configuration(shown.configuration.encode(), choice, author(request, Door.IMPORT))
    except (ValidationError, NotPermitted) as error:
        return _refused(admin, request, shown, error)
    return _plan_page(admin, request, shown, plan)


def _apply(admin: ModelAdmin, request: HttpRequest, shown: Shown) -> HttpResponse:
    try:
        choice = replace(shown.choice, dry_run=False)
        plan = import_configuration(shown.configuration.encode(), choice, author(request, Door.IMPORT))
    except (ValidationError, NotPermitted) as error:
        return _refused(admin, request, shown, error)
    if not plan.applied:
        return _plan_page(admin, request, shown, plan, warning=STALE)
    _log(admin, request, plan)
    done = [f"{change.what} {change.name}" for change in plan.changes if change.what in COLOURS]
    messages.success(request, f"Imported: {', '.join(done) or 'nothing changed'}.")
    return redirect(reverse("admin:environments_environment_changelist"))


def _log(admin: ModelAdmin, request: HttpRequest, plan: Plan) -> None:
    """The history of each engine and environment tells of the import."""
    for change in plan.changes:
        if change.what not in COLOURS:
            continue
        name, _, slug = change.name.partition("/")
        made = Environment.objects.filter(engine__name=name, slug=slug).first() if slug else None
        log = admin.log_addition if change.what == "created" else admin.log_change
        log(request, made or Engine.objects.get(name=name), f"{change.what} by an import")


def _refused(
    admin: ModelAdmin, request: HttpRequest, shown: Shown, error: ValidationError | NotPermitted
) -> HttpResponse:
    """The form again, with the text that was refused: each refusal with its path beside it."""
    form = filled_form(shown.configuration, shown.choice)
    data = {name: value for name, value in form.initial.items() if value}
    form = ImportForm(data)
    form.full_clean()
    for line in refusal_lines(error) if isinstance(error, ValidationError) else [str(error)]:
        form.add_error("text", line)
    return _form_page(admin, request, form)


def _form_page(admin: ModelAdmin, request: HttpRequest, form: ImportForm) -> HttpResponse:
    return _page(admin, request, "environments/import.html", {"form": form, "title": "Import environments"})


def _plan_page(
    admin: ModelAdmin, request: HttpRequest, shown: Shown, plan: Plan, warning: str = ""
) -> HttpResponse:
    agreed = replace(shown, choice=replace(shown.choice, expected=plan.fingerprint))
    context = {
        "title": "What the import would do",
        "plan": plan,
        "changes": [(change, COLOURS.get(change.what, "")) for change in plan.changes],
        "shown": agreed.signed(request),
        "warning": warning,
    }
    return _page(admin, request, "environments/import_plan.html", context)


def _page(admin: ModelAdmin, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    common = {**admin.admin_site.each_context(request), "opts": admin.opts, "media": admin.media}
    return TemplateResponse(request, template, {**common, **context})
