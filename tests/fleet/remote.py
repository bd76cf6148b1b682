"""Remote workers as the tests have them: real keys, real signatures, the site's real routes, no container."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.test import Client

from environments.models import Environment
from jobs.billing.models import Account
from jobs.models import Job
from tests.factories import Site, make_account, submit
from workers.fleet import manifest
from workers.fleet.client import SignedClient, bind, result_body
from workers.fleet.models import FleetPolicy, Owner, RemoteWorker
from workers.fleet.setup import create_fleet_environment, create_owner
from workers.fleet.signing import key_text

CAPABILITIES = {"cpu": 4, "ram": 8192, "disk": 20_000, "slots": 1}


def through_django(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    """A transport that needs no server."""
    address = urlsplit(url)
    path = f"{address.path}?{address.query}" if address.query else address.path
    answer = Client().generic(method, path, body, headers.get("Content-Type", ""), headers=dict(headers))
    return answer.status_code, answer.content


@dataclass
class Remote:
    """One owner with one worker."""

    owner: Owner
    owner_key: Ed25519PrivateKey
    client: SignedClient
    id: str = ""
    pulled: list[dict[str, Any]] = field(default_factory=list)

    def binding(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        statement = {
            "owner_key": key_text(self.owner_key),
            "worker_key": key_text(self.client.key),
            "serial": "1",
            "not_before": now - 60,
            "not_after": now + 3600,
            "capabilities": CAPABILITIES,
            "provider": "",
            "instance": "",
            **changes,
        }
        return bind(self.owner_key, settings.SITE_ID, statement)

    def register(self, **changes: Any) -> dict[str, Any]:
        told = self.client.call("POST", "/workers/register", self.binding(**changes))
        self.id = told["id"]
        return told

    def beat(self) -> dict[str, Any]:
        return self.client.call("POST", f"/workers/{self.id}/heartbeat", {"version": "1"})

    def pull(self, limit: int = 4) -> list[dict[str, Any]]:
        self.pulled = self.client.call("POST", "/workers/assignments/pull", {"limit": limit})
        return self.pulled

    def progress(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        body = {"token": assignment["token"], "note": "half", "log": "line\n"}
        return self.client.call("POST", f"/workers/assignments/{assignment['id']}/progress", body)

    def report(self, assignment: Mapping[str, Any], text: bytes = b"42", exit_code: int = 0, **changes: Any):
        body = self.result(assignment, text, exit_code) | changes
        return self.client.call("POST", f"/workers/assignments/{assignment['id']}/result", body)

    def result(self, assignment: Mapping[str, Any], text: bytes, exit_code: int = 0) -> dict[str, Any]:
        sha256 = hashlib.sha256(text).hexdigest()
        found, digest = manifest.build(exit_code, [("answer.txt", len(text), sha256)])
        return result_body(
            self.client,
            assignment,
            manifest=found,
            sha256=digest,
            contents={sha256: text},
            run_seconds=1.5,
            log={"stdout": {"data": "bGluZQA=", "cut": 7}, "stderr": {"data": "", "cut": 0}},
        )

    def fail(
        self, assignment: Mapping[str, Any], reason: str = "cannot_start", detail: str = "no disk"
    ) -> dict[str, Any]:
        body = {"token": assignment["token"], "success": False, "reason": reason, "detail": detail}
        return self.client.call("POST", f"/workers/assignments/{assignment['id']}/result", body)

    @property
    def row(self) -> RemoteWorker:
        return RemoteWorker.objects.get(public_id=self.id)


@dataclass
class Fleet:
    """The environment that the fleet serves, whose jobs are ada's, and how to come by workers."""

    environment: Environment
    user: Any
    account: Account
    count: int = 0

    @property
    def policy(self) -> FleetPolicy:
        return FleetPolicy.objects.get(environment=self.environment)

    def worker(
        self, *, account: Account | None = None, owner: Remote | None = None, active: bool = True
    ) -> Remote:
        """A new worker, of a new owner unless one is given."""
        self.count += 1
        if owner is None:
            owner_key = Ed25519PrivateKey.generate()
            account = account or make_account(f"owner-{self.count}")
            row = create_owner(account, [key_text(owner_key)])
        else:
            owner_key, row = owner.owner_key, owner.owner
        client = SignedClient(
            "http://testserver", settings.SITE_ID, Ed25519PrivateKey.generate(), through_django
        )
        remote = Remote(row, owner_key, client)
        if active:
            remote.register()
            remote.beat()
        return remote

    def job(self, **fields: Any) -> Job:
        return submit(self.user, environment="fleet/gpu", **fields)


def make_fleet(site: Site, user: Any, account: Account) -> Fleet:
    environment = create_fleet_environment(
        "gpu",
        site.environment,
        most={"cpu": 4, "ram": 8192, "disk": 20_000},
        policy={"replicas": 2},
        prices={"cpu": 1},
    )
    return Fleet(environment, user, account)
