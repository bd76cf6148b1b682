"""Whether an engine can grant jobs a network: tried by a gate and a job of our own, and written into its row.

Tried when a worker starts, if anything wants a network there, and by the sweep when that comes later. Jobs with a
network wait until it was granted; nothing is taken on trust.
"""

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings

from compute_site.core.db import ClockTimestamp, database_now
from compute_site.core.errors import AttemptFailed
from environments.models import Engine, Environment, EnvironmentState
from jobs.models import Job, JobStatus
from workers.engines import Connection
from workers.gates import body_of, gate_spec, stand
from workers.sandbox.connection import EngineUnreachable
from workers.sandbox.network_probe import NoNetwork, host_addresses, try_network

log = logging.getLogger(__name__)

ANEW = timedelta(hours=1)  # after which it is tried again: the host's addresses may have changed
NEEDS_SHARED = (
    "files go through the engine's API here, so that a job's resolvers cannot be named: run the worker as root on"
    " the engine's host"
)


def try_at_start(link: Connection) -> None:
    """A worker starts: what an earlier one found counts no more, since the engine may have changed meanwhile.

    Tries it when it is wanted; an engine that falls silent is tried by the sweep.
    """
    try:
        if wanted(link.engine):
            try_now(link)
            return
    except EngineUnreachable as error:
        log.warning("engine %s: its network was not tried: %s", link.engine.name, error)
    Engine.objects.filter(pk=link.engine.pk).update(
        network_granted=False, network_facts={}, network_tried_at=None
    )


def try_if_due(link: Connection) -> bool:
    """Try what is wanted and was not tried, or is refused, or was granted a while ago. Raises EngineUnreachable.

    True when it is granted now and was not before: who waits for it may go.
    """
    if not wanted(link.engine):
        return False
    was, tried = Engine.objects.values_list("network_granted", "network_tried_at").get(pk=link.engine.pk)
    if was and tried is not None and tried + ANEW > database_now():
        return False
    return try_now(link) and not was


def wanted(engine: Engine) -> bool:
    """Whether an environment of the engine offers a network, or a job waits that was promised one."""
    offers = Environment.objects.filter(engine=engine, enable_network=True)
    waits = Job.objects.filter(
        environment__engine=engine, status__in=[JobStatus.QUEUED, JobStatus.PREPARING], terms__network=True
    )
    return offers.exclude(state=EnvironmentState.RETIRED).exists() or waits.exists()


def try_now(link: Connection) -> bool:
    """Try it, and write down whether it worked, what of the host is to be closed, or why not."""
    facts: dict[str, Any] = {}
    try:
        if link.engine.workspace_mode != "shared":
            raise NoNetwork(NEEDS_SHARED)
        facts = {"host_addresses": host_addresses(link.client, **_place())}
        Engine.objects.filter(pk=link.engine.pk).update(network_facts=facts)  # read by the gate's own rules
        _try(link, facts["host_addresses"])
    except EngineUnreachable:
        raise
    except (NoNetwork, AttemptFailed) as error:
        refuse(link.engine, str(error))
        return False
    _record(link.engine, granted=True, facts=facts)
    return True


def refuse(engine: Engine, note: str) -> None:
    """Write down that it grants none, and why: jobs with a network wait."""
    facts = {"note": note[:2000]}
    if not Engine.objects.filter(pk=engine.pk, network_granted=False, network_facts=facts).exists():
        log.warning("engine %s grants no network: %s", engine.name, note)
    _record(engine, granted=False, facts=facts)


def _record(engine: Engine, *, granted: bool, facts: dict[str, Any]) -> None:
    """Write what was found; read by whoever takes jobs and by whoever tells them what they wait for."""
    Engine.objects.filter(pk=engine.pk).update(
        network_granted=granted, network_facts=facts, network_tried_at=ClockTimestamp()
    )


def _try(link: Connection, closed: list[str]) -> None:
    def open_gate(name: str, labels: dict[str, str], nonce: str) -> str:
        return stand(link.client, name, body_of(gate_spec(link, labels, (0,)), None), nonce=nonce)

    try_network(
        link.client,
        open_gate,
        facts=link.facts,
        workspace=link.workspace,
        closed=closed,
        resolvers=settings.NETWORK_RESOLVERS,
        **_place(),
    )


def _place() -> dict[str, str]:
    return {"site": settings.SITE_ID, "launcher": settings.LAUNCHER, "image": settings.SANDBOX_IMAGE}
