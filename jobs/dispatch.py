"""The knock on an engine's door: “there may be work”. It may be lost, late or doubled; nothing depends on it."""

import logging

from celery import current_app
from django.conf import settings
from django.db import transaction

from environments.models import Engine, EngineKind

log = logging.getLogger(__name__)

KNOCK = "workers.knock"
FLEET_PASS = "workers.fleet_pass"
KNOCK_EXPIRES_SECONDS = 30


def knock(engine: Engine, passed_on_to: str = "") -> None:
    """Send one knock to the engine's queue now. A broker that is down costs at most a moment and no error.

    One of the engine's workers hears it, and passes it on to the queues of the others, where it is passed on no further.
    The fleet has no engine of its own to knock at: the site's worker makes its pass.
    """
    fleet = engine.kind == EngineKind.FLEET
    if fleet and not settings.FLEET_ENABLED:
        return
    try:
        current_app.send_task(
            FLEET_PASS if fleet else KNOCK,
            args=[] if fleet else [engine.pk, True] if passed_on_to else [engine.pk],
            queue=settings.CELERY_TASK_DEFAULT_QUEUE if fleet else passed_on_to or engine.queue,
            expires=KNOCK_EXPIRES_SECONDS,
            retry=False,
            ignore_result=True,
        )
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the row is the queue
        log.warning("knock on %s lost (%s); the periodic repair will knock again", engine.name, error)


def knock_on_commit(engine: Engine) -> None:
    """Knock once the surrounding transaction is committed (at once when there is none)."""
    transaction.on_commit(lambda: knock(engine))
