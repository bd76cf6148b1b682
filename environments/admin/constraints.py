"""Constraints on an environment's page: rows that name resources by slug, written once all resources are there."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.models import construct_instance
from unfold.admin import TabularInline
from unfold.widgets import UnfoldAdminTextInputWidget

from compute_site.core.admin import StrictForm
from environments.models import Constraint, Environment, Resource, constraint_path
from environments.setup import save_constraint

NAMES = {"resource": "resource_slug", "target": "target_slug"}  # fields of the row → fields of the form


class ConstraintForm(StrictForm):
    """One constraint; its resources may be as new as itself."""

    resource_slug = forms.CharField(
        label="resource",
        widget=UnfoldAdminTextInputWidget,
        help_text="Slug of the resource that is asked for, for example gpu.",
    )
    target_slug = forms.CharField(
        label="target",
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="Slug of the resource that it then takes, for example ram. Empty = all of the kind beside it.",
    )

    class Meta:
        model = Constraint
        fields = ("target_kind", "per_unit", "aggregate", "min", "max")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.instance.pk is not None:
            self.initial["resource_slug"] = self.instance.resource.slug
            self.initial["target_slug"] = self.instance.target.slug if self.instance.target else ""

    def path(self) -> str:
        """Refusals of a constraint name both its resources."""
        resource, target, kind = (
            str(self[name].data or "").strip() for name in ("resource_slug", "target_slug", "target_kind")
        )
        return f"{constraint_path(resource, target or kind, bool(self['per_unit'].data))}."

    def values(self) -> dict[str, Any]:
        """What `save_constraint` takes."""
        cleaned = self.cleaned_data
        return {
            "resource": cleaned["resource_slug"],
            "target": cleaned["target_slug"],
            **{name: cleaned[name] for name in ("target_kind", "per_unit", "aggregate", "max")},
            "min": cleaned["min"] or 0,
        }

    def _post_clean(self) -> None:
        """No check of the row yet: `save_constraints` does it, when its resources are known."""
        options = self._meta
        self.instance = construct_instance(self, self.instance, options.fields, options.exclude)

    def _get_validation_exclusions(self) -> set[str]:
        return {field.name for field in Constraint._meta.fields}


class ConstraintInline(TabularInline):
    """What a job that asks for one resource gets of another."""

    model = Constraint
    form = ConstraintForm
    tab = True
    fields = ("resource_slug", "target_slug", "target_kind", "per_unit", "aggregate", "min", "max")
    extra = 0

    def get_fields(self, request: Any, obj: Any = None) -> Any:
        """Who may only look sees the resources themselves."""
        if self.has_change_permission(request, obj):
            return self.fields
        return ("resource", "target", *self.fields[2:])


def save_constraints(environment: Environment, rows: Iterable[ConstraintForm]) -> None:
    """Write the rows that were changed or added. Needs the host's lock; raises ValidationError."""
    resources = {row.slug: row for row in Resource.objects.filter(environment=environment).order_by("pk")}
    for row in rows:
        if not row.has_changed():
            continue
        row.instance.environment = environment
        try:
            save_constraint(row.instance, resources, **row.values())
        except ValidationError as error:
            found = error.update_error_dict({})
            raise ValidationError({_in_form(path): texts for path, texts in found.items()}) from error


def _in_form(path: str) -> str:
    head, _, field = path.rpartition(".")
    return f"{head}.{NAMES.get(field, field)}"
