"""The knock on an engine's door: “there may be work”. It may be lost, late or doubled; nothing depends on it."""

import logging

from celery import current_app
from django.db import transaction

from environments.models import Engine

log = logging.getLogger(__name__)

KNOCK = "workers.knock"
KNOCK_EXPIRES_SECONDS = 30


def knock(engine: Engine) -> None:
    """Send one knock to the engine's queue now. A broker that is down costs at most a moment and no error."""
    try:
        current_app.send_task(
            KNOCK,
            args=[engine.pk],
            queue=engine.queue,
            expires=KNOCK_EXPIRES_SECONDS,
            retry=False,
            ignore_result=True,
        )
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the row is the queue
        log.warning("knock on %s lost (%s); the periodic repair will knock again", engine.name, error)


def knock_on_commit(engine: Engine) -> None:
    """Knock once the surrounding transaction is committed (at once when there is none)."""
    transaction.on_commit(lambda: knock(engine))
