"""Targon: workloads of fixed shapes, in two steps. It ends nothing by itself: our own clocks are the only bound."""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from providers import reading
from providers.base import Instance, InstanceSpec, InstanceState, Offer
from providers.creation import check_price, guarded
from providers.errors import (
    InsufficientCredit,
    MalformedResponse,
    NotFound,
    OutcomeUnknown,
    ProviderError,
    SoldOut,
)
from providers.guardrails import checked, choose
from providers.http import Connection, error_text

BASE_URL = "https://api.targon.com/tha/v2"
MAX_PAGES = 200
STATES = {
    "running": InstanceState.RUNNING,
    "registered": InstanceState.PENDING,
    "provisioning": InstanceState.PENDING,
}


class Targon:
    """A client for one account."""

    kind = "targon"
    has_own_clock = False

    def __init__(self, key: str, base_url: str = BASE_URL) -> None:
        self._api = Connection(base_url, "Authorization", "Bearer ", key)

    def __repr__(self) -> str:
        return f"Targon({self._api!r})"

    def close(self) -> None:
        """Close what is kept open."""
        self._api.close()

    def list_offers(self, max_price: Decimal | None = None) -> list[Offer]:
        """Shapes with GPUs that are available and have a price, cheapest first."""
        answer = self._api.call("GET", "/inventory", params={"type": "rental", "gpu": "true"})
        offers = reading.readable(read_offer, reading.rows(answer, "inventory"))
        within = [offer for offer in offers if max_price is None or offer.price_per_gpu_hour <= max_price]
        return sorted(within, key=lambda offer: (offer.price_per_gpu_hour, offer.id))

    def provision(self, spec: InstanceSpec, idempotency_key: str) -> Instance:
        """Register a workload, then deploy it, guarded: a failed deploy deletes it. The name is the idempotency."""
        spec = checked(spec)
        offer = choose(spec, self.list_offers())
        keys = [self.ensure_ssh_key(key) for key in spec.ssh_keys]
        answer = self._api.call(
            "POST", "/workloads", body=build_workload(spec, offer, keys), creates=True, refusal=refusal
        )
        found = answer.get("uid") if isinstance(answer, dict) else None
        if not isinstance(found, str) or not found:
            raise OutcomeUnknown("the answer to the registration names no workload")
        with guarded(self, found):
            self._api.call("POST", _workload(found) + "/deploy", refusal=refusal)
            instance = self.status(found)
            check_price(spec, instance)
            return instance

    def status(self, instance_id: str) -> Instance:
        """One workload. Raises NotFound, also for one that is told as deleted."""
        row = reading.mapping(self._api.call("GET", _workload(instance_id)), "workload")
        instance = read_instance(row)
        if instance.told == "deleted":
            raise NotFound("The workload is told as deleted.")
        return instance

    def list_instances(self) -> list[Instance]:
        """All workloads, over all pages; those told as deleted are not there. Suspended ones are."""
        found: list[Instance] = []
        cursor, seen = "", set[str]()
        for _ in range(MAX_PAGES):
            params = {"limit": "100"} | ({"cursor": cursor} if cursor else {})
            page = reading.mapping(self._api.call("GET", "/workloads", params=params), "workloads")
            found += [read_instance(row) for row in reading.rows(page.get("items"), "workloads")]
            following = page.get("next_cursor")
            if not following:
                return [instance for instance in found if instance.told != "deleted"]
            cursor = str(following)
            if cursor in seen:
                break
            seen.add(cursor)
        raise MalformedResponse("the pages of workloads do not end")

    def logs(self, instance_id: str, follow: bool = False) -> Iterator[bytes]:
        """The workload's log."""
        query = {"follow": "true" if follow else "false"}
        return self._api.stream(_workload(instance_id) + "/logs", query, endless=follow)

    def terminate(self, instance_id: str) -> None:
        """DELETE; a workload that is gone is a success."""
        try:
            self._api.call("DELETE", _workload(instance_id))
        except NotFound:
            return

    def verify_terminated(self, instance_id: str) -> bool:
        """One good listing without it."""
        return all(instance.id != instance_id for instance in self.list_instances())

    def bound_lifetime(self, instance_id: str, ends_at: datetime) -> None:
        """The provider has no such clock."""

    def balance(self) -> Decimal:
        """Credits left."""
        row = reading.mapping(self._api.call("GET", "/me/credits"), "credits")
        found = reading.price(row.get("credits"))
        if found is None:
            raise MalformedResponse("credits are missing")
        return found

    def ensure_ssh_key(self, public_key: str) -> str:
        """The uid of the key, registered if need be."""
        answer = self._api.call("GET", "/ssh-keys")
        listing = answer.get("items") if isinstance(answer, dict) else answer
        for row in reading.rows(listing, "ssh keys"):
            if row.get("ssh_key") == public_key:
                return reading.text(row, "uid")
        body = {"name": f"cs-{hashlib.sha256(public_key.encode()).hexdigest()[:12]}", "ssh_key": public_key}
        return reading.text(reading.mapping(self._api.call("POST", "/ssh-keys", body=body), "ssh key"), "uid")


def build_workload(spec: InstanceSpec, offer: Offer, ssh_keys: list[str]) -> dict[str, Any]:
    """All that the provider is told; it refuses unknown fields, so the digest goes with the image's name."""
    body: dict[str, Any] = {
        "name": spec.name,
        "type": "RENTAL",
        "image": f"{spec.image}@{spec.digest}",
        "resource_name": offer.id,
        "envs": [{"name": name, "value": value} for name, value in sorted(spec.env.items())],
        "ports": [
            {"port": port, "protocol": "TCP", "routing": "DIRECT"} for port in sorted({22, *spec.ports})
        ],
    }
    if spec.startup_command:
        body["commands"] = spec.startup_command.split()
    if ssh_keys:
        body["ssh_keys"] = ssh_keys
    return body


def read_offer(row: dict[str, Any]) -> Offer | None:
    """A shape; its price is for all its GPUs. None when it is not available or has no price."""
    total = reading.price(row.get("cost_per_hour"))
    if not total or not reading.count(row.get("available")):
        return None
    spec = row.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    gpus = reading.count(spec.get("gpu_count")) or reading.count(row.get("gpu_count")) or 1
    return Offer(
        id=reading.text(row, "name"),
        gpu_type=str(spec.get("gpu_type") or row.get("display_name") or ""),
        gpu_count=gpus,
        price_per_gpu_hour=total / gpus,
        price_per_hour=total,
        provider="targon",
        smallest=gpus,
        raw=row,
    )


def read_instance(row: dict[str, Any]) -> Instance:
    """A workload. Error and suspended are not gone: whatever is not on its way or running has to be ended."""
    state = reading.mapping(row.get("state"), "state")
    told = reading.text(state, "status").lower()
    return Instance(
        id=reading.text(row, "uid"),
        name=str(row.get("name") or ""),
        status=STATES.get(told, InstanceState.ENDED),
        price_per_hour=reading.price(row.get("cost_per_hour")),
        provider="targon",
        told=told,
        raw=row,
    )


def refusal(status: int, told: Any) -> type[ProviderError] | None:
    """Which error a refusal is."""
    text = error_text(told)
    if status in (400, 403, 409, 422) and ("credit" in text or "balance" in text):
        return InsufficientCredit
    if status in (400, 409, 422) and ("not available" in text or "no capacity" in text or "sold out" in text):
        return SoldOut
    return None


def _workload(instance_id: str) -> str:
    return f"/workloads/{quote(instance_id, safe='')}"
