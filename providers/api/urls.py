"""Addresses below /api/v1/providers/, for staff only."""

from django.urls import path

from providers.api import account_views, pod_views

urlpatterns = [
    path("accounts", account_views.Accounts.as_view(), name="provider-accounts"),
    path("accounts/<uuid:public_id>/key", account_views.AccountKey.as_view(), name="provider-account-key"),
    path("offers", account_views.Offers.as_view(), name="provider-offers"),
    path("pods", pod_views.Pods.as_view(), name="pods"),
    path("pods/<uuid:public_id>", pod_views.PodOne.as_view(), name="pod"),
    path("pods/<uuid:public_id>/terminate", pod_views.PodTerminate.as_view(), name="pod-terminate"),
    path("pods/<uuid:public_id>/logs", pod_views.PodLogs.as_view(), name="pod-logs"),
]
