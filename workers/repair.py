"""Repair of lost knocks: whoever has something to do is knocked again, and nothing is changed."""

from celery import current_app
from django.db import connection

from compute_site.core.db import advisory_lock
from environments.models import Engine, EngineKind, EngineState
from jobs.dispatch import knock

# Engines with a queued job whose time has come, or an attempt whose step nobody holds.
NEEDY_SQL = """
    SELECT DISTINCT e.engine_id FROM jobs_job j JOIN environments_environment e ON e.id = j.environment_id
     WHERE j.status = 'queued' AND (j.not_before IS NULL OR j.not_before <= clock_timestamp())
    UNION
    SELECT DISTINCT engine_id FROM jobs_attempt
     WHERE cleaned_at IS NULL AND status <> 'running'
       AND (not_before IS NULL OR not_before <= clock_timestamp())
       AND (lease IS NULL OR lease_until < clock_timestamp())
"""
SWEEP_EXPIRES_SECONDS = 30


def repair_knocks() -> list[int]:
    """Knock on every engine that has something to do; returns their ids. At most one process does it at a time."""
    with advisory_lock("workers.repair_knocks") as mine:
        if not mine:
            return []
        with connection.cursor() as cursor:
            cursor.execute(NEEDY_SQL)
            needy = [row[0] for row in cursor.fetchall()]
        for engine in Engine.objects.filter(pk__in=needy, kind=EngineKind.DOCKER):
            knock(engine)
    return needy


def knock_sweeps() -> None:
    """Ask the worker of every engine in use to sweep it; a worker that is away hears nothing of it later."""
    for engine in Engine.objects.filter(kind=EngineKind.DOCKER).exclude(state=EngineState.DISABLED):
        current_app.send_task(
            "workers.sweep", args=[engine.pk], queue=engine.queue, expires=SWEEP_EXPIRES_SECONDS, retry=False
        )
