"""Pages of long lists: a cursor stays right while rows are added in front."""

from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

ORDERS = {"created": "id", "-created": "-id"}


class JobPages(CursorPagination):
    """By creation, newest first unless `ordering=created`; up to 200 a page."""

    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        asked = request.query_params.get("ordering", "-created")
        if asked not in ORDERS:
            raise ValidationError({"ordering": f"Must be one of {', '.join(ORDERS)}."})
        return (ORDERS[asked],)

    def decode_cursor(self, request: Request) -> Cursor | None:
        """As DRF's, but a position that is no key of a row is the client's fault, not ours."""
        cursor = super().decode_cursor(request)
        position: Any = cursor.position if cursor is not None else None
        if position is not None and not (position.isascii() and position.isdigit() and len(position) < 19):
            raise ValidationError({"cursor": "Not a cursor of this list."})
        return cursor


class EventPages(JobPages):
    """By time, oldest first unless `ordering=-created`."""

    page_size = 200

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        return (
            super().get_ordering(request, queryset, view) if "ordering" in request.query_params else ("id",)
        )
