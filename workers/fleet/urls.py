"""Addresses below /api/v1/workers/."""

from django.urls import path

from workers.fleet import api

urlpatterns = [
    path("workers", api.Workers.as_view()),
    path("workers/register", api.Register.as_view()),
    path("workers/active", api.ActiveWorkers.as_view()),
    path("workers/units", api.Units.as_view()),
    path("workers/<uuid:public_id>/heartbeat", api.Heartbeat.as_view()),
    path("workers/<uuid:public_id>/retire", api.Retire.as_view()),
    path("workers/assignments/pull", api.PullAssignments.as_view()),
    path("workers/assignments/<uuid:public_id>/progress", api.ProgressOf.as_view()),
    path("workers/assignments/<uuid:public_id>/result", api.ResultOf.as_view()),
]
