"""Guards around every request: a database that is down is told as such, and NUL never reaches a query."""

from collections.abc import Callable

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from compute_site.core.api import database_down_page, problem_page

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class DatabaseDownMiddleware:
    """A lost or unreachable database, or an exhausted pool, in a view outside the REST API → 503 with Retry-After."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return (
            database_down_page(request) if isinstance(exception, OperationalError | InterfaceError) else None
        )


class RefuseNulMiddleware:
    """PostgreSQL keeps no NUL: an address that has one is nothing of ours, a query that has one is wrong."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path_info:
            return problem_page(request, 404, "not_found", "There is nothing here for you.")
        if "%00" in request.META.get("QUERY_STRING", "") or "\0" in request.META.get("QUERY_STRING", ""):
            return problem_page(request, 400, "invalid", "The query contains a NUL character.")
        return self.get_response(request)
