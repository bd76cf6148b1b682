"""Addresses below /api/v1/."""

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularRedocView, SpectacularSwaggerView

from jobs.api import (
    account_views,
    configuration_views,
    content_views,
    environment_views,
    job_views,
    token_views,
)

urlpatterns = [
    path("tokens", token_views.Tokens.as_view(), name="tokens"),
    path("tokens/current", token_views.CurrentToken.as_view(), name="token-current"),
    path("environments", environment_views.EnvironmentList.as_view(), name="environments"),
    path("environments/<uuid:public_id>", environment_views.EnvironmentOne.as_view(), name="environment"),
    path("accounts", account_views.AccountList.as_view(), name="accounts"),
    path("accounts/<uuid:public_id>", account_views.AccountOne.as_view(), name="account"),
    path("accounts/<uuid:public_id>/ledger", account_views.AccountLedger.as_view(), name="account-ledger"),
    path("accounts/<uuid:public_id>/holds", account_views.AccountHolds.as_view(), name="account-holds"),
    path("jobs", job_views.JobList.as_view(), name="jobs"),
    path("jobs/quote", job_views.JobQuote.as_view(), name="job-quote"),
    path("jobs/<uuid:public_id>", job_views.JobOne.as_view(), name="job"),
    path("jobs/<uuid:public_id>/cancel", job_views.JobCancel.as_view(), name="job-cancel"),
    path("jobs/<uuid:public_id>/events", job_views.JobEvents.as_view(), name="job-events"),
    path("jobs/<uuid:public_id>/logs", content_views.JobLogs.as_view(), name="job-logs"),
    path("jobs/<uuid:public_id>/artifacts", content_views.JobArtifacts.as_view(), name="job-artifacts"),
    path(
        "jobs/<uuid:public_id>/artifacts/<path:path>",
        content_views.ArtifactContent.as_view(),
        name="job-artifact",
    ),
    path("admin/import", configuration_views.ConfigurationImport.as_view(), name="configuration-import"),
    path("admin/export", configuration_views.ConfigurationExport.as_view(), name="configuration-export"),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path(
        "docs/redoc",
        SpectacularRedocView.as_view(url_name="schema", template_name="jobs/redoc.html"),
        name="redoc",
    ),
]
