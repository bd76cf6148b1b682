"""The gate of an attempt whose job was granted a network: stood up before the job's container, removed after it.

Each call is idempotent by the gate's name, as for the job's own container; whoever takes a step over finds what stands.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings

from compute_site.core.errors import AttemptFailed, InfrastructureFailed
from environments.models import Engine
from jobs.models import Attempt, Job
from jobs.networks import was_promised
from workers.checkpoint import checkpoint
from workers.engines import Connection
from workers.sandbox import cgroup, readback
from workers.sandbox.docker import EngineClient, EngineUnreachable, NameTaken
from workers.sandbox.gate import READY, GateSpec, build_gate, gate_labels, gate_name
from workers.sandbox.networks import provide_network
from workers.sandbox.spec import LABEL_PREFIX, LAUNCHER_PATH
from workers.sandbox.workspace import bind

READY_SECONDS = 10.0  # rules are put in within milliseconds
LOOK = 0.02  # seconds between two looks at a gate's log


class NoGate(InfrastructureFailed):
    """No gate could be stood up for a job: others of the engine would fare no better."""


def resolvers(job: Job) -> tuple[str, ...]:
    """Whom the job asks for names; nobody without a network."""
    return tuple(settings.NETWORK_RESOLVERS) if was_promised(job) else ()


def gate_cgroup(attempt: Attempt, link: Connection) -> str | None:
    """The gate's own cgroup, beside the job's, so that nothing of it counts as the job's."""
    if not link.engine.facts.get("cgroup_parent"):
        return None
    return cgroup.gate_parent(settings.SITE_ID, str(attempt.public_id), link.facts.cgroup_driver)


def open_gate(link: Connection, attempt: Attempt, labels: dict[str, str]) -> str:
    """Before: anything. After: the attempt's gate runs and its rules stand. Returns its container's id.

    `labels` are those of the job's container. Raises NoGate, InfrastructureFailed when the engine has come to grant no
    network since the job was taken (what is to be closed is not known then), EngineUnreachable.
    """
    if not Engine.objects.filter(pk=link.engine.pk, network_granted=True).exists():
        raise InfrastructureFailed("cannot_start", f"engine {link.engine.name} grants no network any more")
    try:
        spec = gate_spec(link, gate_labels(labels), tuple(attempt.cores))
        return stand(
            link.client,
            gate_name(attempt.container_name),
            body_of(spec, gate_cgroup(attempt, link)),
            nonce=str(attempt.nonce),
            passed=checkpoint,
        )
    except EngineUnreachable:
        raise
    except AttemptFailed as error:
        raise NoGate(error.reason, error.detail) from error


def gate_spec(link: Connection, labels: dict[str, str], cores: tuple[int, ...]) -> GateSpec:
    """What a gate on this engine is now: the site's network there (made if need be), and all that is closed."""
    found = Engine.objects.values_list("network_facts", flat=True).get(pk=link.engine.pk)
    if "host_addresses" not in found:  # a trial has just failed: without them the host would be open
        raise InfrastructureFailed("cannot_start", "the addresses of the engine's host are not known")
    image = link.client.image(settings.SANDBOX_IMAGE)
    if image is None:
        raise InfrastructureFailed(
            "cannot_start", f"the engine has no image {settings.SANDBOX_IMAGE} for a gate"
        )
    return GateSpec(
        labels=labels,
        image_id=image.id,
        network=provide_network(link.client, settings.SITE_ID),
        cores=cores,
        resolvers=tuple(settings.NETWORK_RESOLVERS),
        closed=(*found["host_addresses"], *settings.NETWORK_CLOSED),
        ipv6=Path(
            "/proc/sys/net/ipv6"
        ).exists(),  # a network needs a shared workspace, so the kernel is this one
    )


def body_of(spec: GateSpec, cgroup_parent: str | None) -> dict[str, Any]:
    """The body of its container."""
    launcher = bind(settings.LAUNCHER, LAUNCHER_PATH, read_only=True)
    return build_gate(spec, [launcher], cgroup_parent=cgroup_parent)


def stand(
    client: EngineClient,
    name: str,
    body: dict[str, Any],
    *,
    nonce: str,
    passed: Callable[[str], None] = lambda point: None,
) -> str:
    """Create or find the gate of this name, start it if it never was, and wait until its rules stand. Returns its id.

    `passed` is told each step. Raises InfrastructureFailed, EngineUnreachable.
    """
    try:
        gate = client.create(name, body)
    except NameTaken as taken:
        if taken.facts is None or taken.facts.label("nonce") != nonce:
            raise InfrastructureFailed("start_lost", "a stranger's container has its gate's name") from taken
        gate = taken.facts.id
    passed("gate.created")
    raw = client.inspect_raw(gate)
    if raw is None:
        raise InfrastructureFailed("start_lost", "its gate vanished")
    if different := readback.differences(body, raw):
        raise InfrastructureFailed("policy_mismatch", f"its gate: {'; '.join(different[:20])}")
    if raw["State"]["Status"] == "created":
        client.start(gate)
    passed("gate.started")
    _wait_ready(client, gate)
    passed("gate.ready")
    return gate


def _wait_ready(client: EngineClient, gate: str) -> None:
    """It says so once; one that said so and has ended since is none any more."""
    end = time.monotonic() + READY_SECONDS
    while True:
        facts = client.inspect(gate)
        said = client.log(gate) if facts is not None else ""
        state = facts.status if facts is not None else "gone"
        if state != "running" or time.monotonic() > end:
            words = said.strip() or "it says nothing"
            raise InfrastructureFailed("cannot_start", f"its gate is {state}: {words}")
        if READY in said:
            return
        time.sleep(LOOK)


def standing_gate(link: Connection, attempt: Attempt) -> dict[str, Any]:
    """The gate that an earlier step stood up, as inspected. Raises InfrastructureFailed when it does not run any more."""
    raw = link.client.inspect_raw(gate_name(attempt.container_name))
    labels = raw["Config"]["Labels"] or {} if raw else {}
    if raw is None or labels.get(f"{LABEL_PREFIX}nonce") != str(attempt.nonce):
        raise InfrastructureFailed("cannot_start", "its gate is not there any more")
    if raw["State"]["Status"] != "running":
        raise InfrastructureFailed("cannot_start", f"its gate is {raw['State']['Status']}")
    return raw


def remove_gate(link: Connection, attempt: Attempt) -> bool:
    """Remove the attempt's gate. True when it is gone; a stranger's container of its name is left alone."""
    facts = link.client.inspect(gate_name(attempt.container_name))
    if facts is None or facts.label("nonce") != str(attempt.nonce):
        return True
    return link.client.remove(facts.id)
