"""An imitation of Lium's API: machines, templates, keys, pods that boot and bill."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

from compute_site.embedded.fakes.server import FakeProvider, Refused, Request

RENTABLE = "AVAILABLE"
_LOCAL = re.compile(r"://(localhost|127\.|0\.0\.0\.0|\[::1\])|http://\d+\.\d+\.\d+\.\d+", re.I)
FIREWALL = b"<html><head><title>403 Forbidden</title></head></html>"


def executor(name: str, gpus: int, price: float, **fields: Any) -> dict[str, Any]:
    """A machine as GET /executors tells it; `price` is per GPU and hour."""
    return {
        "id": str(uuid.uuid4()),
        "machine_name": name,
        "gpu_count": gpus,
        "available_gpu_count": gpus,
        "min_gpu_count_for_rental": 1,
        "price_per_gpu": price,
        "status": RENTABLE,
        "location": {"country": "Nowhere"},
        "executor_ip_address": "192.0.2.1",
        "specs": {"gpu": {"count": gpus, "driver": "570.1", "details": [{"name": name, "capacity": 81559}] * gpus}},
        **fields,
    }  # fmt: skip


class FakeLium(FakeProvider):
    """`keeps_listing`: DELETE answers 200 and does nothing. `polls_to_boot`: looks until a pod runs."""

    prefix = "/api"

    def __init__(self, key: str = "lium-key-for-tests-0001") -> None:
        super().__init__(key)
        self.executors = [
            executor("NVIDIA H200", 8, 2.5),
            executor("NVIDIA GeForce RTX 4090", 1, 0.35),
            executor("NVIDIA GeForce RTX 4090", 2, 0.3, gpu_count="2", available_gpu_count="2"),
            executor("NVIDIA H200", 8, 2.0, min_gpu_count_for_rental=None),
        ]  # fmt: skip
        self.templates: dict[str, dict[str, Any]] = {}
        self.ssh_keys: list[dict[str, Any]] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.bills: list[dict[str, Any]] = []
        self.replies: dict[str, dict[str, Any]] = {}
        self.credit = 100.0
        self.keeps_listing = False
        self.polls_to_boot = 2

    def answer(self, request: Request) -> Any:
        """One call of the API."""
        if request.path == "/version":
            return {"version": "test", "features": []}
        self._let_in(request)
        for method, pattern, action in (
            ("GET", "/executors", self._executors),
            ("GET", "/executors/([^/]+)/quote", self._quote),
            ("POST", "/executors/([^/]+)/rent", self._rent),
            ("GET", "/pods", self._pods),
            ("GET", "/pods/([^/]+)", self._pod),
            ("DELETE", "/pods/([^/]+)", self._delete),
            ("GET", "/pods/([^/]+)/logs", self._logs),
            ("POST", "/pods/([^/]+)/schedule-removal", self._schedule),
            ("GET", "/templates", self._templates),
            ("POST", "/templates", self._new_template),
            ("GET", "/templates/([^/]+)", self._template),
            ("GET", "/ssh-keys", self._keys),
            ("POST", "/ssh-keys", self._new_key),
            ("GET", "/users/me", self._me),
        ):
            found = re.fullmatch(pattern, request.path)
            if request.method == method and found:
                return action(request, *found.groups())
        raise Refused(404, _error("NOT_FOUND", "no such route"))

    def cost(self) -> float:
        """USD billed so far, by our clock, for all pods that were ever there."""
        return sum(
            bill["price"] * ((bill["ended"] or self.now()) - bill["started"]) / 3600 for bill in self.bills
        )

    def _let_in(self, request: Request) -> None:
        if request.size > 64 * 1024 or _LOCAL.search(str(request.body)):
            raise Refused(403, FIREWALL)
        if request.headers.get("x-api-key") != self.key:
            raise Refused(401, _error("UNAUTHORIZED", "Invalid API key"))

    def _executors(self, request: Request) -> Any:
        return [one for one in self.executors if int(one["available_gpu_count"]) > 0]

    def _quote(self, request: Request, executor_id: str) -> Any:
        machine = self._machine(executor_id)
        count = int(request.query.get("gpu_count", machine["available_gpu_count"]))
        hourly = machine["price_per_gpu"] * count
        return {
            "executor_id": executor_id, "gpu_count": count, "hours": float(request.query.get("hours", 1)),
            "price_per_hour": hourly, "lines": [], "pod_balance_floor_usd": hourly / 4,
            "total_usd": hourly * float(request.query.get("hours", 1)),
        }  # fmt: skip

    def _machine(self, executor_id: str) -> dict[str, Any]:
        found = next((one for one in self.executors if one["id"] == executor_id), None)
        if found is None:
            raise Refused(404, _error("NOT_FOUND", "Executor not found"))
        return found

    def _rent(self, request: Request, executor_id: str) -> Any:
        key = request.headers.get("idempotency-key", "")
        if key in self.replies:
            return self.replies[key]
        body, machine = request.body, self._machine(executor_id)
        free = int(machine["available_gpu_count"])
        count = int(body.get("gpu_count") or free)
        if body["template_id"] not in self.templates:
            raise Refused(422, _error("UNPROCESSABLE", "template not found"))
        if count > free:
            raise Refused(400, _error("BAD_REQUEST", "Executor is not available"))
        if machine["min_gpu_count_for_rental"] is None and count != int(machine["gpu_count"]):
            raise Refused(400, _error("BAD_REQUEST", "This node rents whole only"))
        if not 1 <= int(body.get("termination_hours") or 1) <= 720:
            raise Refused(422, _error("UNPROCESSABLE", "termination_hours"))
        if self.credit < machine["price_per_gpu"] * count:
            raise Refused(403, _error("insufficient_balance", "Insufficient balance"))
        machine["available_gpu_count"] = free - count
        reply = {"success": True, "pod_id": self._create(body, machine, count)}
        if key:
            self.replies[key] = reply
        return reply

    def _create(self, body: dict[str, Any], machine: dict[str, Any], count: int) -> str:
        pod_id, price = str(uuid.uuid4()), machine["price_per_gpu"] * count
        self.pods[pod_id] = {
            "id": pod_id,
            "pod_name": body["pod_name"],
            "status": "PENDING",
            "price": price,
            "gpu_count": str(count),
            "executor": {**machine, "price_per_gpu": None},
            "template": dict(self.templates[body["template_id"]]),
            "ssh_connect_cmd": None,
            "ports_mapping": {},
            "created_at": _when(self.now()),
            "updated_at": _when(self.now()),
            "removal_scheduled_at": None,
            "_hours": body.get("termination_hours"),
            "_polls": 0,
        }
        self.bills.append({"pod": pod_id, "price": price, "started": self.now(), "ended": None})
        return pod_id

    def _told(self, pod: dict[str, Any]) -> dict[str, Any]:
        """A look at a pod; after some of them it has booted, and its removal time is set anew."""
        pod["_polls"] += 1
        if pod["status"] == "PENDING" and pod["_polls"] > self.polls_to_boot:
            pod["status"] = "RUNNING"
            pod["ssh_connect_cmd"] = "ssh root@192.0.2.1 -p 40022"
            pod["ports_mapping"] = {"22": 40022}
            if pod["_hours"]:
                pod["removal_scheduled_at"] = _when(self.now() + 3600 * int(pod["_hours"]) + 7200)
        return {key: value for key, value in pod.items() if not key.startswith("_")}

    def _pods(self, request: Request) -> Any:
        return [self._told(pod) for pod in self.pods.values()]

    def _find(self, pod_id: str) -> dict[str, Any]:
        if pod_id not in self.pods:
            raise Refused(404, _error("NOT_FOUND", "Pod not found"))
        return self.pods[pod_id]

    def _pod(self, request: Request, pod_id: str) -> Any:
        return self._told(self._find(pod_id))

    def _delete(self, request: Request, pod_id: str) -> Any:
        pod = self._find(pod_id)
        if not self.keeps_listing:
            del self.pods[pod_id]
            machine = self._machine(pod["executor"]["id"])
            machine["available_gpu_count"] = int(machine["available_gpu_count"]) + int(pod["gpu_count"])
            for bill in self.bills:
                if bill["pod"] == pod_id:
                    bill["ended"] = self.now()
        return {"success": True}

    def _logs(self, request: Request, pod_id: str) -> Any:
        self._find(pod_id)
        return b"pulling image\nready\n"

    def _schedule(self, request: Request, pod_id: str) -> Any:
        pod = self._find(pod_id)
        pod["removal_scheduled_at"] = request.body["removal_scheduled_at"]
        return {"removal_scheduled_at": pod["removal_scheduled_at"]}

    def _templates(self, request: Request) -> Any:
        return list(self.templates.values())

    def _new_template(self, request: Request) -> Any:
        body = request.body
        if not body.get("name") or not body.get("docker_image"):
            raise Refused(422, _error("UNPROCESSABLE", "name and docker_image are required"))
        template_id = str(uuid.uuid4())
        self.templates[template_id] = {**body, "id": template_id, "status": "VERIFY_SUCCESS", "user_id": "me"}
        return self.templates[template_id]

    def _template(self, request: Request, template_id: str) -> Any:
        if template_id not in self.templates:
            raise Refused(404, _error("NOT_FOUND", "Template not found"))
        return self.templates[template_id]

    def _keys(self, request: Request) -> Any:
        return self.ssh_keys

    def _new_key(self, request: Request) -> Any:
        row = {"id": str(uuid.uuid4()), "created_at": _when(self.now()), **request.body}
        self.ssh_keys.append(row)
        return row

    def _me(self, request: Request) -> Any:
        return {"id": "me", "email": "site@example.org", "balance": self.credit}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": None, "request_id": "r-1"}}


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
