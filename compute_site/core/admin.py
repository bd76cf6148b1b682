"""Admin bases: forms that validate everything, refuse stale edits, and show late refusals beside their fields."""

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from django import forms
from django.apps import apps
from django.contrib import messages
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import IntegrityError, models
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.admin import ModelAdmin

from compute_site.core.db import constraint_name
from compute_site.core.errors import SiteError
from compute_site.core.numbers import whole_error

BOUNDS = (MinValueValidator, MaxValueValidator)
STALE = (
    "Somebody else saved this since you opened it. Nothing was written: open it again and repeat your change."
)


class StrictForm(forms.ModelForm):
    """Validates every field of the row, also those that are not on the form: Django skips their constraints.

    `refused` holds what was found only while saving, by path; it is shown when the form is rendered again.
    """

    refused: Mapping[str, list[str]] = {}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for field in self.fields.values():
            if isinstance(field, forms.IntegerField):  # its bounds are the row's to check, in the row's words
                kept = [one for one in field.validators if not isinstance(one, BOUNDS)]
                field.validators = kept

    def add_error(self, field: str | None, error: Any) -> None:
        """As Django's; what is no whole number is told as it is everywhere else."""
        number = field is not None and isinstance(self.fields.get(field), forms.IntegerField)
        if field is not None and number and getattr(error, "code", "") == "invalid":
            error = whole_error(_typed(self[field].data))
        super().add_error(field, error)

    def _get_validation_exclusions(self) -> set[str]:
        return {name for name in self.errors if name != NON_FIELD_ERRORS}

    def path(self) -> str:
        """What the paths of this form's own refusals begin with, e.g. "resources.ram."."""
        return ""

    def field_of(self, path: str) -> str:
        """The field beside which a refusal at this path stands; empty for none of this form."""
        prefix = self.path()
        return path.removeprefix(prefix) if path.startswith(prefix) else ""

    def title_of(self, path: str) -> str:
        """What a refusal that stands beside no field begins with."""
        return path

    def clean(self) -> dict[str, Any]:
        """Adds the refusals of an earlier try to save."""
        cleaned = super().clean() or self.cleaned_data
        for path, found in self.refused.items():
            name = self.field_of(path)
            if name in self.fields:
                self.add_error(name, list(found))
            elif not self.path():
                self.add_error(
                    None,
                    list(found)
                    if path == NON_FIELD_ERRORS
                    else [f"{self.title_of(path)}: {text}" for text in found],
                )
        return cleaned


def _typed(text: Any) -> Any:
    """What somebody has typed, as a number if it is any."""
    try:
        return Decimal(text)
    except (InvalidOperation, TypeError, ValueError):
        return text


class StrictFormSet(forms.BaseInlineFormSet):
    """Rows of one page that are there twice are refused in the words of the constraint that forbids it."""

    def get_form_error(self) -> str:
        """Beside the second of them."""
        assert self.model is not None
        rules = [one for one in self.model._meta.constraints if isinstance(one, models.UniqueConstraint)]
        return str(rules[0].get_violation_error_message()) if rules else super().get_form_error()

    def get_unique_error_message(self, unique_check: Any) -> str:
        """Above the rows."""
        return self.get_form_error()


class EditedForm(StrictForm):
    """The form of a row with a `version`: it remembers which one it was opened with."""

    seen_version = forms.IntegerField(
        widget=forms.HiddenInput, required=False, help_text="The version that this form was opened with."
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.instance.pk is not None:
            self.initial["seen_version"] = self.instance.version

    def clean(self) -> dict[str, Any]:
        """Refuses a form that is stale already; saving checks again."""
        cleaned = super().clean()
        if self.instance.pk is not None and cleaned.get("seen_version") != self.instance.version:
            self.add_error(None, STALE)
        return cleaned


class RefusingAdmin(ModelAdmin):
    """Turns what is found only while saving (cross-row rules, broken constraints) into errors on the form.

    The first try is rolled back whole; the form is then rendered again with the refusal.
    """

    form = StrictForm

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """As Django's; ValidationError and IntegrityError from saving become errors of the form."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except ValidationError as error:
            refused = error.update_error_dict({})
            found = {path: ValidationError(texts).messages for path, texts in refused.items()}
        except IntegrityError as error:
            found = {NON_FIELD_ERRORS: [constraint_message(error)]}
        request.refused = found  # type: ignore[attr-defined]
        return super().changeform_view(request, object_id, form_url, extra_context)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        """The form class, with what was refused in this request."""
        form = super().get_form(request, obj, change=change, **options)
        form.refused = getattr(request, "refused", {})
        return form

    def _create_formsets(self, request: HttpRequest, obj: Any, change: bool) -> Any:
        formsets, inlines = super()._create_formsets(request, obj, change)
        for formset in formsets:
            for form in formset.forms:
                form.refused = getattr(request, "refused", {})
        return formsets, inlines


class EditedAdmin(RefusingAdmin):
    """Saves a row with a `version`: only the fields that were changed, and only if nobody saved since."""

    form = EditedForm

    def lock_before_saving(self, obj: Any) -> None:
        """Take the locks that an edit of `obj` needs; called first in the transaction of saving."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Raises ValidationError when the row was saved by somebody else since the form was opened."""
        self.lock_before_saving(obj)
        if not change:
            super().save_model(request, obj, form, change)
            return
        seen = form.cleaned_data["seen_version"]
        if not type(obj)._default_manager.filter(pk=obj.pk, version=seen).update(version=F("version") + 1):
            raise ValidationError(STALE)
        obj.version = seen + 1
        columns = {field.name for field in obj._meta.concrete_fields}
        changed = [name for name in form.changed_data if name in columns]
        if changed:
            obj.save(update_fields=changed)


class ReadOnlyAdmin(ModelAdmin):
    """For rows that the running site owns."""

    def has_add_permission(self, request: HttpRequest, *arguments: Any) -> bool:
        """Nobody adds them by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes them by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes them by hand."""
        return False


def constraint_message(error: IntegrityError) -> str:
    """What a broken constraint means, in the words of the model that declares it."""
    name = constraint_name(error)
    for model in apps.get_models():
        for constraint in model._meta.constraints:
            if constraint.name == name:
                return str(constraint.get_violation_error_message())
    return f"The database refused it ({name or 'unnamed rule'}); nothing was written."


def perform(
    admin: ModelAdmin,
    request: HttpRequest,
    object_id: Any,
    action: Callable[[Any], object],
    done: str,
) -> HttpResponse:
    """Run a confirmed action on one object, tell the outcome, log it, and go back to its page.

    Refusals (ValidationError, SiteError) are shown and change nothing.
    """
    obj = cast(models.Model | None, admin.get_object(request, str(object_id)))
    page = reverse(f"admin:{admin.opts.app_label}_{admin.opts.model_name}_changelist")
    if obj is not None:
        page = reverse(f"admin:{admin.opts.app_label}_{admin.opts.model_name}_change", args=[obj.pk])
        if told := refusals(action, obj):
            messages.error(request, told[0])
        else:
            admin.log_change(request, obj, done)
            messages.success(request, f"{obj}: {done}")
    return _go(request, page)


def to_list(admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """Back to the list, after an action whose object is gone."""
    return _go(request, reverse(f"admin:{admin.opts.app_label}_{admin.opts.model_name}_changelist"))


def _go(request: HttpRequest, page: str) -> HttpResponse:
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": page})
    return redirect(page)


def refusals(action: Callable[[Any], object], obj: models.Model) -> list[str]:
    """Run the action; what refused it (ValidationError, SiteError), in words, or nothing when it is done."""
    try:
        action(obj)
    except ValidationError as error:
        return [" ".join(error.messages)]
    except SiteError as error:
        return [str(error)]
    return []
