"""An imitation of Targon's API: an inventory of shapes, workloads in two steps, pages, credits."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

from compute_site.embedded.fakes.server import FakeProvider, Refused, Request

FIELDS = frozenset(
    {"name", "type", "image", "resource_name", "envs", "ports", "commands", "args", "ssh_keys", "registry_auth",
     "app_id", "serverless_config"}
)  # fmt: skip
PAGE = 2  # Rows of a page, whatever was asked: pages have to be followed.


def shape(name: str, kind: str, gpus: int, cost: float, available: int = 4) -> dict[str, Any]:
    """A row of the inventory; `cost` is per hour for all of it."""
    return {
        "name": name, "display_name": f"{gpus} x {kind}", "description": "", "type": "rental", "gpu": True,
        "spec": {"gpu_type": kind, "gpu_count": gpus, "vcpu": 16, "memory": 128, "storage": 500},
        "cost_per_hour": cost, "available": available,
    }  # fmt: skip


class FakeTargon(FakeProvider):
    """`keeps_listing`: DELETE answers 200 and does nothing. `polls_to_boot`: looks until a workload runs."""

    prefix = "/tha/v2"

    def __init__(self, key: str = "targon-key-for-tests-0001") -> None:
        super().__init__(key)
        self.inventory = [
            shape("h200-large", "H200", 8, 17.6),
            shape("h200-small", "H200", 1, 2.4),
            shape("h100-small", "H100", 1, 1.9),
            shape("b200-small", "B200", 1, 1.0, available=0),
        ]
        self.workloads: dict[str, dict[str, Any]] = {}
        self.ssh_keys: list[dict[str, Any]] = []
        self.bills: list[dict[str, Any]] = []
        self.credit = 100.0
        self.keeps_listing = False
        self.polls_to_boot = 2

    def answer(self, request: Request) -> Any:
        """One call of the API."""
        if request.headers.get("authorization") != f"Bearer {self.key}":
            raise Refused(401, {"error": "unauthorized", "reason": "invalid api key"})
        for method, pattern, action in (
            ("GET", "/inventory", self._inventory),
            ("GET", "/workloads", self._workloads),
            ("POST", "/workloads", self._register),
            ("POST", "/workloads/deploy", self._not_allowed),
            ("GET", "/workloads/([^/]+)", self._workload),
            ("DELETE", "/workloads/([^/]+)", self._delete),
            ("POST", "/workloads/([^/]+)/deploy", self._deploy),
            ("GET", "/workloads/([^/]+)/state", self._state),
            ("GET", "/workloads/([^/]+)/events", self._events),
            ("GET", "/workloads/([^/]+)/logs", self._logs),
            ("GET", "/me/credits", self._credits),
            ("GET", "/ssh-keys", self._keys),
            ("POST", "/ssh-keys", self._new_key),
        ):
            found = re.fullmatch(pattern, request.path)
            if request.method == method and found:
                return action(request, *found.groups())
        raise Refused(410 if request.path == "/apps" else 404, {"error": "not found", "reason": ""})

    def cost(self) -> float:
        """USD billed so far, by our clock, for all workloads that were ever deployed."""
        return sum(
            bill["price"] * ((bill["ended"] or self.now()) - bill["started"]) / 3600 for bill in self.bills
        )

    def _inventory(self, request: Request) -> Any:
        kind = request.query.get("type")
        return [row for row in self.inventory if kind in (None, row["type"])]

    def _not_allowed(self, request: Request) -> Any:
        raise Refused(405, {"error": "method not allowed", "reason": ""})

    def _register(self, request: Request) -> Any:
        body = request.body
        if unknown := set(body) - FIELDS:
            raise Refused(400, {"error": "bad request", "reason": f"unknown field {sorted(unknown)[0]}"})
        if not re.fullmatch("[a-z0-9-]{1,32}", body.get("name", "")):
            raise Refused(400, {"error": "bad request", "reason": "name"})
        found = next((row for row in self.inventory if row["name"] == body.get("resource_name")), None)
        price = found["cost_per_hour"] if found else 0.05
        if self.credit < price:
            raise Refused(400, {"error": "payment required", "reason": "insufficient credits"})
        uid = f"wrk-{uuid.uuid4().hex[:12]}"
        self.workloads[uid] = {
            "uid": uid, "name": body["name"], "type": body["type"], "image": body["image"],
            "resource_name": body.get("resource_name"), "cost_per_hour": price, "created_at": _when(self.now()),
            "state": {"status": "registered", "message": "", "urls": [], "ready_replicas": 0, "total_replicas": 1},
            "_polls": 0, "_body": body,
        }  # fmt: skip
        return _shown(self.workloads[uid])

    def _deploy(self, request: Request, uid: str) -> Any:
        row = self._find(uid)
        if self.credit < row["cost_per_hour"]:
            raise Refused(400, {"error": "payment required", "reason": "insufficient credits"})
        row["state"]["status"] = "provisioning"
        self.bills.append({"pod": uid, "price": row["cost_per_hour"], "started": self.now(), "ended": None})
        return _shown(row)

    def _find(self, uid: str) -> dict[str, Any]:
        if uid not in self.workloads:
            raise Refused(404, {"error": "not found", "reason": "no such workload"})
        return self.workloads[uid]

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        row["_polls"] += 1
        if row["state"]["status"] == "provisioning" and row["_polls"] > self.polls_to_boot:
            row["state"].update(status="running", ready_replicas=1)
        return _shown(row)

    def _workloads(self, request: Request) -> Any:
        kind = request.query.get("type", "").upper()
        rows = [row for row in self.workloads.values() if kind in ("", row["type"])]
        start = int(request.query.get("cursor") or 0)
        following = str(start + PAGE) if start + PAGE < len(rows) else None
        return {"items": [self._told(row) for row in rows[start : start + PAGE]], "next_cursor": following}

    def _workload(self, request: Request, uid: str) -> Any:
        return self._told(self._find(uid))

    def _state(self, request: Request, uid: str) -> Any:
        row = self._told(self._find(uid))
        return {
            "uid": uid,
            "workload_type": row["type"],
            "updated_at": _when(self.now()),
            "urls": [],
            **row["state"],
        }

    def _events(self, request: Request, uid: str) -> Any:
        row = self._find(uid)
        event = {"workload_uid": uid, "workload_type": row["type"], "event_type": "state",
                 "new_status": row["state"]["status"], "created_at": _when(self.now())}  # fmt: skip
        return {"items": [event], "next_cursor": None}

    def _logs(self, request: Request, uid: str) -> Any:
        self._find(uid)
        return b"pulling image\nready\n"

    def _delete(self, request: Request, uid: str) -> Any:
        self._find(uid)
        if not self.keeps_listing:
            del self.workloads[uid]
            for bill in self.bills:
                if bill["pod"] == uid:
                    bill["ended"] = self.now()
        return {}

    def _credits(self, request: Request) -> Any:
        return {"credits": self.credit, "currency": "USD"}

    def _keys(self, request: Request) -> Any:
        return {"items": self.ssh_keys, "next_cursor": None}

    def _new_key(self, request: Request) -> Any:
        row = {"uid": f"key-{len(self.ssh_keys)}", **request.body}
        self.ssh_keys.append(row)
        return row


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
