"""A knock on the site's queue: a message that may be lost."""

import logging

from celery import current_app

log = logging.getLogger(__name__)


def knock(task: str, pod_id: int) -> None:
    """There may be something to do for a pod. A broker that does not answer costs only the wait for the next pass."""
    try:
        current_app.send_task(task, args=(pod_id,), expires=60, retry=False, ignore_result=True)
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the row is the queue
        log.warning("knock %s for pod %s lost (%s); the next pass does it", task, pod_id, error)
