"""The filter of lists whose rows belong to environments."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from environments.models import Environment


class EnvironmentFilter(admin.RelatedFieldListFilter):
    """For lists of what belongs to environments: reads their engines, which name them, with them."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[Any]:
        """As Django's, in one statement."""
        rows = Environment.objects.select_related("engine").order_by("engine__name", "slug")
        return [(row.pk, str(row)) for row in rows]
