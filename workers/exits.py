"""Step 9: a container is seen exited. Its facts are recorded once, and cores, devices and memory are free at once."""

import logging
from pathlib import Path

from django.conf import settings
from django.db import transaction

from environments import reservations
from environments.models import Engine
from jobs.models import Attempt
from jobs.settlement import record_exit as record
from workers.checkpoint import checkpoint
from workers.engines import Connection, confirm_alive
from workers.hands import nudge_all_on_commit
from workers.sandbox import cgroup
from workers.sandbox.docker import ContainerFacts
from workers.sandbox.marker import Marker
from workers.verdict import ExitFacts, exit_facts

log = logging.getLogger(__name__)

ENDED = ("exited", "dead")
MIB = 2**20


def record_exit(
    connection: Connection, attempt: Attempt, container: ContainerFacts, *, oom_event: bool = False
) -> bool:
    """Record that the attempt's container has ended (`container` as inspected). True if this caller did it.

    Before: starting or running (or earlier, when somebody else started it). After: collecting; cores, devices and
    memory released in the same transaction; the next step is nudged. Raises EngineUnreachable, and records nothing,
    when the end may be that of the engine, which takes its containers along: its return is waited for.
    """
    marker = connection.workspace(attempt.container_name, attempt.image_id).marker()
    if _unexplained(marker, container) and not attempt.stop_reason:
        confirm_alive(connection)
    facts = _facts(connection, attempt, container, marker, oom_event)
    checkpoint("exit.before")
    with transaction.atomic():
        assert connection.engine.host_id is not None
        reservations.lock_host(connection.engine.host_id)
        done = record(
            attempt,
            facts=facts.as_json(),
            exit_code=container.exit_code,
            started_at=container.started_at,
            exited_at=container.finished_at,
        )
        if done:
            reservations.release_running(attempt.public_id)
            nudge_all_on_commit(connection.engine)
    if done:
        checkpoint("exit.after")
    return done


def _facts(
    connection: Connection,
    attempt: Attempt,
    container: ContainerFacts,
    marker: Marker | None,
    oom_event: bool,
) -> ExitFacts:
    return exit_facts(
        container,
        marker,
        memory_limit=attempt.job.amounts["ram"] * MIB,
        usage=_usage(connection, attempt),
        oom_event=oom_event,
        boot_id=_boot_id(connection),
        connection_lost=_unexplained(marker, container) and _connection_lost(attempt),
    )


def _unexplained(marker: Marker | None, container: ContainerFacts) -> bool:
    """Whether the container may have been ended from outside: by its engine or host, or by somebody's signal."""
    return marker is None or marker.termed or not marker.agrees(container.exit_code)


def _connection_lost(attempt: Attempt) -> bool:
    """Whether nobody watched the engine for a while since the start: it may have been restarted, and killed the job."""
    lost = Engine.objects.values_list("connection_lost_at", flat=True).get(pk=attempt.engine_id)
    return lost is not None and (attempt.started_at is None or lost >= attempt.started_at)


def record_gone(connection: Connection, attempt: Attempt) -> bool:
    """Record that the attempt's container is gone without a trace; the caller holds its name by a tombstone."""
    container = ContainerFacts(
        id=attempt.container_id,
        name=attempt.container_name,
        status="gone",
        exit_code=None,
        oom_killed=False,
        error="its container vanished",
        started_at=attempt.started_at,
        finished_at=None,
        labels={},
        pid=0,
    )
    return record_exit(connection, attempt, container)


def _usage(connection: Connection, attempt: Attempt) -> dict[str, int | None]:
    if not connection.engine.facts.get("cgroup_parent"):
        return {}
    used = cgroup.usage(
        cgroup.parent(settings.SITE_ID, str(attempt.public_id), connection.facts.cgroup_driver)
    )
    return {"cpu_ns": used.cpu_ns, "peak_bytes": used.peak_bytes, "memory_kills": used.memory_kills}


def _boot_id(connection: Connection) -> str:
    """The boot id of the engine's host where this worker stands on it, else empty."""
    if connection.engine.workspace_mode != "shared":
        return ""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
