"""Step 7: one thread per engine, of one of its workers, watches its containers: the event stream, the clock, cancel flags, disks, logs.

While a container runs no other thread waits for it. What the watcher sees it writes by short guarded updates; what
has to be done then is done by whoever hears the knock.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections

from compute_site.core.db import ClockTimestamp, read_key, rows_of
from compute_site.core.errors import InfrastructureFailed
from environments.models import Engine
from jobs.models import Attempt, AttemptStatus, Job
from workers.cleaning import hold_name
from workers.engines import Connection, WrongEngine, connect
from workers.exits import ENDED, record_exit, record_gone
from workers.listening import Listener, Seen
from workers.sandbox.docker import EngineUnreachable
from workers.sandbox.workspace import STREAMS
from workers.shipping import AT_ONCE, ship_log
from workers.stopping import request_stop, send_signal

log = logging.getLogger(__name__)

TURN = 0.5  # seconds between two looks at the clock
COMPARE = 5.0  # seconds between two comparisons of all containers with the rows
MIB = 2**20
RUNNING_IN_SQL = """
    SELECT {columns} FROM {table}
     WHERE engine_id = %s AND container_id = %s AND status IN ('running', 'starting') AND cleaned_at IS NULL
"""


@dataclass
class Watcher:
    """The watching thread of one worker. `start` and `stop` once each; `poke` wakes it.

    While `on_duty` says no, another worker of the engine watches: this one stands by and listens to nothing.
    """

    engine: Engine
    when_watched: Callable[[], None] = lambda: (
        None
    )  # called each time that it begins to hear of everything, or to stand by
    on_duty: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        self.seen: queue.Queue[Seen | None] = queue.Queue()
        self._listener: Listener | None = None
        self._stands_by = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.engine.name}", daemon=True)
        self._out_of_memory: set[str] = set()
        self._shipped: dict[tuple[int, str], int] = {}
        self._compare_at = 0.0

    def start(self) -> None:
        """Begin to watch, or to stand by."""
        self._thread.start()

    def stop(self) -> None:
        """End both threads; running containers stay as they are."""
        self._stopping.set()
        self.poke()
        self._thread.join(timeout=30)
        self._stop_listening()

    def poke(self) -> None:
        """Wake the thread; its next look at the clock is at most one turn away."""
        self.seen.put(None)

    def _run(self) -> None:
        turn_at = 0.0
        while not self._stopping.is_set():
            try:
                self._hear(max(0.0, turn_at - monotonic()))
                if monotonic() >= turn_at:
                    turn_at = monotonic() + TURN
                    if self._takes_its_turn():
                        self._turn()
            except (EngineUnreachable, WrongEngine) as error:
                log.warning("engine %s: %s", self.engine.name, error)
                self._stopping.wait(1.0)
            except Exception:
                log.exception("watcher of %s: a turn failed", self.engine.name)
                self._stopping.wait(1.0)
            finally:
                close_old_connections()  # it would not survive a killed connection otherwise

    def _takes_its_turn(self) -> bool:
        """Whether this worker watches now; its ear is open exactly then."""
        if not self.on_duty():
            self._stop_listening()
            if not self._stands_by:
                self._stands_by = True
                self.when_watched()
            return False
        if self._listener is None:
            self._stands_by = False
            self._compare_at = 0.0
            self._listener = Listener(self.engine, self.seen)
            self._listener.start()
        return True

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    def _hear(self, seconds: float) -> None:
        """Handle what the event stream brings, for at most `seconds`."""
        try:
            seen = self.seen.get(timeout=seconds) if seconds else self.seen.get_nowait()
        except queue.Empty:
            return
        if seen is None:
            return
        if seen.kind == "connected":
            self._compare_at = 0.0
            self.when_watched()
        elif seen.kind == "oom":
            self._out_of_memory.add(seen.container_id)
        elif seen.kind == "die":
            self._ended(seen.container_id)

    def _ended(self, container_id: str) -> None:
        link = connect(self.engine)
        attempt = _running_in(self.engine, container_id)
        container = link.client.inspect(container_id) if attempt else None
        if attempt and container and container.status in ENDED:
            record_exit(link, attempt, container, oom_event=container_id in self._out_of_memory)
        self._out_of_memory.discard(container_id)

    def _turn(self) -> None:
        due = monotonic() >= self._compare_at
        if due:  # first: what ended while nobody watched is not to be stopped any more
            self._compare_at = monotonic() + COMPARE
            compare(connect(self.engine))
        running = list(watched(self.engine).filter(status=AttemptStatus.RUNNING))
        for attempt in running:
            with _apart(attempt):
                self._look_at(connect(self.engine), attempt)
        if due:
            alive = {attempt.pk for attempt in running}
            self._shipped = {key: offset for key, offset in self._shipped.items() if key[0] in alive}

    def _look_at(self, link: Connection, attempt: Attempt) -> None:
        now: datetime = attempt.now  # type: ignore[attr-defined]
        if reason := reason_to_stop(link, attempt, now):
            request_stop(attempt, reason)
        if attempt.stop_reason:
            send_signal(link, attempt, now)
        workspace = link.workspace(attempt.container_name, attempt.image_id)
        for stream in STREAMS:
            key = (attempt.pk, stream)
            self._shipped[key] = ship_log(
                attempt, workspace, stream, start=self._shipped.get(key), chunks=AT_ONCE
            )


def _running_in(engine: Engine, container_id: str) -> Attempt | None:
    """The attempt whose container it is, if that may be running."""
    rows = rows_of(Attempt, RUNNING_IN_SQL, [engine.pk, container_id])
    if not rows:
        return None
    rows[0].job = read_key(Job, rows[0].job_id)
    return rows[0]


def watched(engine: Engine):  # type: ignore[no-untyped-def]  # a queryset with an annotation has no name in the stubs
    """Attempts of the engine whose container may be running, with the database's time as `now`."""
    rows = Attempt.objects.filter(
        engine=engine, status__in=[AttemptStatus.RUNNING, AttemptStatus.STARTING], cleaned_at__isnull=True
    )
    rows = rows.exclude(container_id="").select_related("job").annotate(now=ClockTimestamp())
    return rows.defer("effective", "job__spec", "job__labels")  # large, and not looked at here


def reason_to_stop(link: Connection, attempt: Attempt, now: datetime) -> str:
    """Why a running attempt has to be stopped now, or an empty text."""
    if attempt.stop_reason:
        return ""
    if attempt.job.cancel_requested_at:
        return attempt.job.cancel_reason or "cancelled"
    assert attempt.started_at is not None
    if now >= attempt.started_at + timedelta(seconds=attempt.job.max_duration):
        return "time_limit"
    return "disk_limit" if _over_its_disk(link, attempt) else ""


def _over_its_disk(link: Connection, attempt: Attempt) -> bool:
    """A loop disk limits itself, but the logs lie beside it; without one the files are counted too."""
    limit = attempt.job.terms["log_cap"] * len(STREAMS)
    limit += attempt.job.amounts["disk"] * MIB
    return link.workspace(attempt.container_name, attempt.image_id).used_bytes() > limit


def compare(link: Connection) -> None:
    """Every container that should run, looked up in the engine's own list: nothing is learnt from events alone."""
    listed = {container.id: container for container in link.client.list_site(settings.SITE_ID)}
    Engine.objects.filter(pk=link.engine.pk, unreachable_since__isnull=False).update(unreachable_since=None)
    for attempt in watched(link.engine):
        container = listed.get(attempt.container_id)
        if container is not None and container.status not in ENDED:
            continue
        with _apart(attempt):
            facts = link.client.inspect(attempt.container_id)
            if facts is not None and facts.status in ENDED:
                record_exit(link, attempt, facts)
            elif facts is None and attempt.status == AttemptStatus.RUNNING:
                _vanished(link, attempt)


@contextmanager
def _apart(attempt: Attempt) -> Iterator[None]:
    """What goes wrong with one attempt keeps no other from being watched. The engine's or database's silence does."""
    try:
        yield
    except (EngineUnreachable, OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("attempt %s: not watched at this turn", attempt.short_id)


def _vanished(link: Connection, attempt: Attempt) -> None:
    """404 alone is not gone: only when we hold the name can no late create bring it back."""
    try:
        hold_name(link, attempt)
    except InfrastructureFailed as error:
        log.warning("attempt %s: vanished, and its name cannot be held: %s", attempt.short_id, error)
        return
    record_gone(link, attempt)
