"""The part of an engine's Celery worker that is not about messages: presence, watcher, heartbeat."""

import threading
from typing import Any

from celery import bootsteps
from celery.signals import worker_shutting_down

from environments.models import Engine, SlotSet
from workers import presence


def engine_step(engine: Engine, slots: SlotSet) -> type[bootsteps.StartStopStep]:
    """The bootstep that makes a Celery worker a worker of `engine` with these slots: add it to the app before the worker is made."""

    class EngineStep(bootsteps.StartStopStep):
        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Any) -> None:
            presence.arrive(engine, slots, parent.concurrency)
            worker_shutting_down.connect(_drain)

        def stop(self, parent: Any) -> None:
            presence.leave()

        terminate = stop

    return EngineStep


def _drain(**_: Any) -> None:
    """SIGTERM: nothing new is taken while the steps at work are finished. Not in the signal's own handler: that may
    have interrupted anything, also somebody at the database.
    """
    threading.Thread(target=presence.drain, name="drain", daemon=True).start()
