"""Environments in the admin, with what jobs forbid: the page of the layer below knows none of them."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from environments.admin.environment import EnvironmentAdmin
from environments.models import Environment, Resource
from environments.models.resource import PHYSICAL
from environments.setup import errors_at
from jobs.models import FINAL, Job


@admin.register(Environment)
class OfferAdmin(EnvironmentAdmin):
    """Its page, where no resource loses the name by which jobs ask for it."""

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Saves the rows of a tab. Raises ValidationError beside the slug of a resource that was renamed."""
        if formset.model is Resource:
            for row in formset.initial_forms:
                if "slug" in row.changed_data and row not in formset.deleted_forms:
                    with errors_at(f"resources.{row.instance.slug}"):
                        _refuse_asked(row.instance, row.initial["slug"])
        super().save_formset(request, form, formset, change)


def _refuse_asked(resource: Resource, old: str) -> None:
    """A job keeps the names of its admission; one that runs is queued again with them when its attempt fails."""
    jobs = Job.objects.filter(environment=resource.environment_id, terms__resources__has_key=old)
    waiting = jobs.exclude(status__in=FINAL).count()
    if waiting:
        text = f"{waiting} jobs that wait or run were admitted with {old}, and could not start again with {resource.slug};"
        other = "" if resource.kind in PHYSICAL else f", or leave {old} and add another resource"
        raise ValidationError({"slug": f"{text} wait for them or cancel them{other}."})
