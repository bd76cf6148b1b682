"""All addresses of the site."""

import sys

from django.contrib import admin
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views import defaults
from django.views.generic import RedirectView

from compute_site.core.api import database_down_page, problem_page
from compute_site.overview_page import overview
from jobs.api.health import healthz, readyz

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/overview/", overview, name="overview"),
    path("admin/", admin.site.urls),
    path("api/v1/providers/", include("providers.api.urls")),
    path("api/v1/", include("jobs.api.urls")),
    path("api/v1/", include("workers.fleet.urls")),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Unknown addresses below /api/ are told as problems."""
    if request.path.startswith("/api/"):
        return problem_page(request, 404, "not_found", "There is nothing at this address.")
    return defaults.page_not_found(request, exception)


def fault(request: HttpRequest) -> HttpResponse:
    """A fault of ours; a database that went away in a middleware ends here too."""
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return database_down_page(request)
    if request.path.startswith("/api/"):
        return problem_page(request, 500, "internal_error", "A fault of the site. It was logged.")
    return defaults.server_error(request)


handler404 = not_found
handler500 = fault
