"""Steps 12 to 14: remove what is left of an attempt, release the rest; and hold a name when a start is given up."""

import logging

from django.conf import settings
from django.db import transaction

from compute_site.core.db import ClockTimestamp
from compute_site.core.errors import InfrastructureFailed, SiteError
from environments import reservations
from jobs.models import Attempt
from jobs.networks import was_promised
from workers import gates
from workers.checkpoint import checkpoint
from workers.engines import Connection
from workers.hands import nudge_all_on_commit
from workers.sandbox import cgroup
from workers.sandbox.docker import EngineUnreachable, NameTaken
from workers.sandbox.spec import LABEL_PREFIX
from workers.steps import Run
from workers.sweep import end_processes

log = logging.getLogger(__name__)


class NotClean(SiteError):
    """Something of the attempt could not be removed yet; it is shown as a leftover and tried again."""


def clean(run: Run) -> None:
    """Before: settled, failed or abandoned. After: nothing on the engine, disk and uid released, `cleaned_at` set.
    Whoever waits for them is nudged.

    Raises NotClean when something resists, EngineUnreachable when the engine is silent; all of it may be repeated.
    """
    attempt, connection = run.attempt, run.connection
    _remove_container(connection, attempt)
    checkpoint("clean.removed")
    if was_promised(run.job) and not gates.remove_gate(connection, attempt):
        raise NotClean("Docker did not remove its gate yet")
    workspace = run.workspace
    try:
        workspace.destroy()
    except EngineUnreachable:
        raise
    except InfrastructureFailed as error:
        raise NotClean(str(error)) from error
    if not workspace.absent():
        raise NotClean("its workspace is still there")
    for group in _cgroups(run):
        if not cgroup.remove(group):
            end_processes(group)
            raise NotClean("processes were left in its cgroup without its container")
    checkpoint("clean.destroyed")
    with transaction.atomic():
        reservations.release_rest(
            attempt.public_id, never_started=True
        )  # it is gone, whether it ever ran or not
        Attempt.objects.filter(pk=attempt.pk, cleaned_at__isnull=True).update(
            cleaned_at=ClockTimestamp(), lease=None, lease_worker=None, lease_until=None, leftover=""
        )
        nudge_all_on_commit(connection.engine)
    checkpoint("clean.after")


def _cgroups(run: Run) -> list[str]:
    """Of the job, and of its gate where it has one."""
    gate = gates.gate_cgroup(run.attempt, run.connection) if was_promised(run.job) else None
    return [group for group in (run.cgroup_parent, gate) if group]


def _remove_container(connection: Connection, attempt: Attempt) -> None:
    """By id where we know it, else by name if the nonce is ours: a stranger's container of that name stays."""
    wanted = attempt.container_id
    if not wanted:
        facts = connection.client.inspect(attempt.container_name)
        if facts is None or facts.label("nonce") != str(attempt.nonce):
            return
        wanted = facts.id
    if not connection.client.remove(wanted):
        raise NotClean("Docker did not remove its container yet")


def hold_name(connection: Connection, attempt: Attempt) -> None:
    """Create a container with the attempt's name that is never started: a create that comes late gets 409.

    Only with it does a 404 mean gone. Raises InfrastructureFailed when the name cannot be had.
    """
    labels = {f"{LABEL_PREFIX}{key}": value for key, value in _tombstone_labels(attempt).items()}
    image = connection.client.image(attempt.image_id) or connection.client.image(settings.SANDBOX_IMAGE)
    image_id = image.id if image else attempt.image_id  # any image will do, and its own may have been removed
    body = {"Image": image_id, "Cmd": ["/nothing"], "Labels": labels, "NetworkDisabled": True}
    try:
        connection.client.create(attempt.container_name, body)
    except NameTaken as taken:
        if taken.facts is None or not taken.facts.label("tombstone"):
            raise InfrastructureFailed(
                "start_lost", "its name is taken by a container that is not a tombstone"
            ) from taken


def _tombstone_labels(attempt: Attempt) -> dict[str, str]:
    return {
        "site": settings.SITE_ID,
        "attempt": str(attempt.public_id),
        "nonce": str(attempt.nonce),
        "tombstone": "1",
    }
