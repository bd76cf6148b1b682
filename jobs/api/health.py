"""Alive, and ready: for whoever watches the site from outside. No authentication, nothing secret."""

from typing import Any

from celery import current_app
from django.db import Error, connection
from django.http import HttpRequest, JsonResponse

from compute_site.core.db import database_now
from environments.models import Engine, EngineState
from jobs.obstacles import engine_reasons

BROKER_TIMEOUT_SECONDS = 2


def healthz(request: HttpRequest) -> JsonResponse:
    """This process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Database, broker, and a live worker on each active engine; 503 when one is missing, each named."""
    checks: dict[str, Any] = {"database": _database(), "broker": _broker()}
    if checks["database"] == "ok":
        checks["engines"] = _engines()
    faults = [value for value in (checks["database"], checks["broker"], *checks.get("engines", {}).values())]
    ready = all(value == "ok" for value in faults)
    return JsonResponse({"status": "ready" if ready else "not ready", **checks}, status=200 if ready else 503)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return "does not answer"
    return "ok"


def _broker() -> str:
    try:
        with current_app.connection_for_write(connect_timeout=BROKER_TIMEOUT_SECONDS) as broker:
            broker.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_SECONDS)
    except Exception:  # noqa: BLE001 - whatever the broker's client raises, it is not ready
        return "does not answer"
    return "ok"


def _engines() -> dict[str, str]:
    now = database_now()
    active = Engine.objects.filter(state=EngineState.ACTIVE)
    return {engine.name: "; ".join(engine_reasons(engine, now)) or "ok" for engine in active}
