"""The ear of a watcher: a thread that reads Docker's event stream and hands over what it hears."""

import logging
import queue
import threading
from dataclasses import dataclass

from django.conf import settings
from django.db import close_old_connections

from compute_site.core.db import ClockTimestamp
from environments.models import Engine
from workers.engines import WrongEngine, connect, disconnect
from workers.sandbox.docker import EngineUnreachable, EventStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """`die`, `oom` or `start` of a container, or `connected`: from now on nothing is missed, look at everything once."""

    kind: str
    container_id: str = ""


class Listener:
    """Keeps an event stream open and puts what comes into `seen`. A stream that ends is opened again."""

    def __init__(self, engine: Engine, seen: "queue.Queue[Seen | None]") -> None:
        self.engine = engine
        self.seen = seen
        self._stopping = threading.Event()
        self._stream: EventStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"listen-{engine.name}", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Close the stream and end the thread."""
        self._stopping.set()
        if self._stream is not None:
            self._stream.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except (EngineUnreachable, WrongEngine) as error:
                log.warning("engine %s: %s", self.engine.name, error)
            except Exception:
                log.exception("listener of %s failed", self.engine.name)
            if not self._stopping.is_set():
                self._note_lost()
                self._stopping.wait(1.0)

    def _listen(self) -> None:
        self._stream = connect(self.engine).client.events(settings.SITE_ID)
        self._note_connected()
        self.seen.put(Seen("connected"))
        for event in self._stream:
            self.seen.put(Seen(event.kind, event.container_id))

    def _note_connected(self) -> None:
        """Nobody listened until now: an exit without a marker since then may be the engine's doing, not the job's."""
        Engine.objects.filter(pk=self.engine.pk).update(
            connection_lost_at=ClockTimestamp(), unreachable_since=None
        )
        close_old_connections()

    def _note_lost(self) -> None:
        """The engine went silent: clients are told, and the next connection asks again who it is."""
        disconnect(self.engine)
        try:
            Engine.objects.filter(pk=self.engine.pk, unreachable_since__isnull=True).update(
                unreachable_since=ClockTimestamp()
            )
        except Exception:
            log.exception("could not note that %s is silent", self.engine.name)
        finally:
            close_old_connections()
