"""The demo of the fleet: three owners, three agents, an honest unit, and one about which somebody lies."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from workers.fleet.client import RefusedRequest, SignedClient, Unreachable

from . import demo_view as view
from .demo import farewell, watch
from .demo_client import Client
from .demo_plan import iris_job
from .demo_result import show_artifacts, show_result, show_times
from .processes import FLEET, PREPARED, fleet_agent, fleet_preparation
from .progress import Failed
from .supervisor import Supervisor

HONEST, LIAR = ("north", "east"), "south"
PATIENCE_SECONDS = 120
ENVIRONMENT = "fleet/shared"


def main(environment: Mapping[str, str], supervisor: Supervisor, *, once: bool) -> None:
    """Run the story against the site at `SITE_URL`. Raises `Failed` when something did not end as it should."""
    url, site = environment["SITE_URL"], json.loads(PREPARED.read_text())
    client = Client(url, site["token"])
    supervisor.run_to_end(fleet_preparation(url, (*HONEST, LIAR), LIAR))
    reader, names = _reader(url), _names()
    view.title("Three owners; the agents of two of them come first")
    _start(client, supervisor, HONEST, names)
    offers = [offer for offer in client.environments() if offer["name"] == ENVIRONMENT]
    job = _honest(client, reader, supervisor, offers, names)
    view.title("The third agent comes. It alters what it reports")
    _start(client, supervisor, (LIAR,), names)
    _disputed(client, reader, supervisor, offers, names)
    view.title("The fleet")
    rows = [
        (names[row["key"]], row["status"], str(row["faults"]))
        for row in client.workers()
        if row["key"] in names
    ]
    view.table(("owner", "worker", "faults"), rows)
    if dict((name, faults) for name, _, faults in rows) != {"north": "0", "east": "0", "south": "1"}:
        raise Failed("The faults are not as they should be.")
    view.line("job", f"{job['id']}: {job['status']}")
    farewell(url, site, once)


def _reader(url: str) -> SignedClient:
    """An owner reads the units with its own key."""
    folder = FLEET / HONEST[0]
    raw = base64.b64decode((folder / "owner.key").read_text())
    site_id = yaml.safe_load((folder / "agent.yaml").read_text())["site_id"]
    return SignedClient(url, site_id, Ed25519PrivateKey.from_private_bytes(raw))


def _names() -> dict[str, str]:
    """The owner's name by the worker's public key."""
    return {
        json.loads(Path(FLEET / name / "binding.json").read_text())["binding"]["worker_key"]: name
        for name in (*HONEST, LIAR)
    }


def _start(client: Client, supervisor: Supervisor, owners: tuple[str, ...], names: Mapping[str, str]) -> None:
    for name in owners:
        supervisor.start(fleet_agent(name))
    waited = 0.0
    while True:
        active = {names.get(row["key"]) for row in client.workers() if row["status"] == "active"}
        if set(owners) <= active:
            break
        waited = _pause(waited, supervisor, "the agents did not come")
    for name in owners:
        view.line(name, "registered by its owner's signature, active", view.GREEN)


def _honest(
    client: Client,
    reader: SignedClient,
    supervisor: Supervisor,
    offers: list[dict[str, Any]],
    names: Mapping[str, str],
) -> dict[str, Any]:
    view.title("A job for the fleet: two owners must come to the same result")
    job = client.submit(iris_job(offers))
    view.line("job", f"{job['id']} in {ENVIRONMENT}")
    job = watch(client, job["id"], supervisor.check)
    unit = _unit(reader, job["id"])
    _show_unit(unit, client, names)
    if job["status"] != "succeeded" or unit["degraded"]:
        raise Failed(f"The honest job ended as {job['end_reason']}, the unit is {unit}.")
    show_result(job)
    if differing := show_artifacts(client, job["id"]):
        raise Failed(f"The sha256 of {differing} differs.")
    show_times(client, job)
    return job


def _disputed(
    client: Client,
    reader: SignedClient,
    supervisor: Supervisor,
    offers: list[dict[str, Any]],
    names: Mapping[str, str],
) -> None:
    job = client.submit(iris_job(offers))
    view.line("job", f"{job['id']} in {ENVIRONMENT}")
    job = watch(client, job["id"], supervisor.check)
    if job["end_reason"] != "fleet_disputed":
        raise Failed(f"The lie was not found out: the job ended as {job['end_reason']}.")
    view.line("why", job["end_message"], view.YELLOW)
    waited, unit = 0.0, _unit(reader, job["id"])
    view.line("audit", f"run again on {unit['audit']['runs_on']}, an engine of the site's own")
    while unit["audit"]["outcome"] == "pending":
        waited = _pause(waited, supervisor, "the audit did not end")
        unit = _unit(reader, job["id"])
    _show_unit(unit, client, names)
    view.line("audit", f"ended, the right result is {unit['audit']['manifest_sha256'][:16]}…", view.GREEN)


def _show_unit(unit: Mapping[str, Any], client: Client, names: Mapping[str, str]) -> None:
    """Who came to what."""
    owners = {row["id"]: names.get(row["key"], "?") for row in client.workers()}
    view.line("unit", f"{unit['id']}: {unit['status']}")
    rows = [
        (
            owners.get(each["worker"], "-"),
            each["status"],
            f"{each['manifest_sha256'][:16]}…",
            "signed" if each["has_proof"] else "-",
            "fault" if each["worker"] in unit["faults"] else "",
        )
        for each in unit["replicas"]
    ]
    view.table(("replica of", "status", "result (sha256)", "proof", ""), rows)


def _unit(reader: SignedClient, job_id: str) -> dict[str, Any]:
    try:
        units = reader.call("GET", "/workers/units")
    except (RefusedRequest, Unreachable) as error:
        raise Failed(f"The units cannot be read: {error}") from None
    found: dict[str, Any] = next(unit for unit in units if unit["job"] == job_id)
    return found


def _pause(waited: float, supervisor: Supervisor, problem: str) -> float:
    if waited > PATIENCE_SECONDS:
        raise Failed(f"Nothing moved for {PATIENCE_SECONDS} s: {problem}.")
    supervisor.check()
    time.sleep(0.2)
    return waited + 0.2
