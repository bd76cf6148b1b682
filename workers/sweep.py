"""Sweep: remove from an engine what has no live attempt. Only what is provably ours; safe to run twice and to crash.

A row is always committed before its container is created, so something without a row was not made by this database:
it is reported by `fsck`, never removed.
"""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from django.conf import settings

from compute_site.core.db import database_now
from compute_site.core.errors import InfrastructureFailed
from environments.models import Engine
from jobs.models import Attempt
from workers.engines import Connection, connect
from workers.sandbox import cgroup
from workers.sandbox.docker import ContainerFacts
from workers.sandbox.probe import is_old_probe

log = logging.getLogger(__name__)

GRACE = timedelta(
    seconds=30
)  # after its cleaning, before what turns up of an attempt is taken for a leftover
TOMBSTONE_LIFE = timedelta(hours=24)


def sweep(engine: Engine) -> list[str]:
    """Remove what is left of attempts that were cleaned; returns what was removed, in words. Raises EngineUnreachable."""
    link = connect(engine)
    removed = []
    for container in stray_containers(link):
        if link.client.remove(container.id):
            removed.append(f"container {container.name}")
    for name in stray_workspaces(link):
        with suppress(InfrastructureFailed):
            link.workspace(name).destroy()
            removed.append(f"workspace {name}")
    for group in stray_cgroups(link):
        end_processes(group)
        if cgroup.remove(group):
            removed.append(f"cgroup {group}")
    for line in removed:
        log.warning("engine %s: swept %s", engine.name, line)
    return removed


def stray_containers(link: Connection) -> Iterator[ContainerFacts]:
    """Containers of attempts that were cleaned a while ago: created late, or started again by somebody. Gates too.

    And those of trials of the engine that were broken off, which have no row.
    """
    for container in link.client.list_site(settings.SITE_ID):
        if is_old_probe(container.name, settings.SITE_ID):
            yield container
            continue
        attempt = _attempt_of(container)
        if attempt is None or str(attempt.nonce) != container.label("nonce"):
            continue
        life = TOMBSTONE_LIFE if container.label("tombstone") else GRACE
        if _cleaned_for(attempt, life):
            yield container


def stray_workspaces(link: Connection) -> list[str]:
    """Names of workspaces, however little is left of them, whose attempts were cleaned a while ago."""
    names = sorted({trace.name for trace in link.traces()})
    rows = Attempt.objects.filter(container_name__in=names, engine=link.engine)
    trials = [name for name in names if is_old_probe(name, settings.SITE_ID)]
    return trials + [attempt.container_name for attempt in rows if _cleaned_for(attempt, GRACE)]


def stray_cgroups(link: Connection) -> list[str]:
    """Cgroups of attempts that were cleaned a while ago."""
    if not link.engine.facts.get("cgroup_parent"):
        return []
    groups = {name: as_uuid(cgroup.attempt_of(name)) for name in cgroup.existing(settings.SITE_ID)}
    rows = Attempt.objects.filter(public_id__in=filter(None, groups.values()), engine=link.engine)
    cleaned = {attempt.public_id for attempt in rows if _cleaned_for(attempt, GRACE)}
    return [name for name, key in groups.items() if key in cleaned]


def end_processes(group: str) -> None:
    """Kill what still lives in an attempt's own cgroup: a start that died with its engine leaves such a process."""
    for pid in cgroup.processes(group):
        with suppress(ProcessLookupError, PermissionError):
            log.warning("killing process %d left in %s", pid, group)
            os.kill(pid, signal.SIGKILL)


def as_uuid(text: str) -> UUID | None:
    """`text` as a UUID, or None."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _attempt_of(container: ContainerFacts) -> Attempt | None:
    key = as_uuid(container.label("attempt"))
    return Attempt.objects.filter(public_id=key).first() if key else None


def _cleaned_for(attempt: Attempt, life: timedelta) -> bool:
    return attempt.cleaned_at is not None and attempt.cleaned_at + life < database_now()
