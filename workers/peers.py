"""The other workers of an engine: told when there may be something that only they can take."""

import logging
import threading

from django.db import close_old_connections

from environments.models import Slots
from environments.slots import queues_of_others
from jobs.dispatch import knock

log = logging.getLogger(__name__)


class Peers:
    """A thread that passes knocks on to the queues of the engine's other workers; however often it is asked while it
    is at it, once more is enough. A thread, since nobody who works or watches should wait for a slow broker.

    A worker that has all of its engine has no peers, and needs no thread.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._asked = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def start(self) -> None:
        """Begin to listen to who asks."""
        if self.slots.cores is not None:
            self._thread.start()

    def tell(self) -> None:
        """Room came free, or a knock was heard that may be for another."""
        self._asked.set()

    def stop(self) -> None:
        """Tell them once more, since they go on with what is left here; then end."""
        self._stopping = True
        self.tell()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        last = False
        while not last:
            self._asked.wait()
            self._asked.clear()
            last = self._stopping
            try:
                for queue in queues_of_others(self.slots):
                    knock(self.slots.engine, queue)
            except Exception:
                log.exception("the other workers of %s were not told", self.slots.engine.name)
            finally:
                close_old_connections()
