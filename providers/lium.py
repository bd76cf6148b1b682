"""Lium: machines of many owners, rented by template; it ends a pod itself after its termination hours."""

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from providers import reading
from providers.base import Instance, InstanceSpec, InstanceState, Offer
from providers.creation import check_price, guarded
from providers.errors import (
    FirewallRefused,
    InsufficientCredit,
    MalformedResponse,
    NotFound,
    OutcomeUnknown,
    ProviderError,
    ScopeMissing,
    SoldOut,
    TemplateMismatch,
)
from providers.guardrails import checked, choose
from providers.http import Connection, error_text

BASE_URL = "https://lium.io/api"
STATES = {
    InstanceState.RUNNING: {"RUNNING"},
    InstanceState.PENDING: {"PENDING", "START_PENDING", "REBOOT_PENDING"},
}


class Lium:
    """A client for one account."""

    kind = "lium"
    has_own_clock = True

    def __init__(self, key: str, base_url: str = BASE_URL) -> None:
        self._api = Connection(base_url, "X-API-Key", "", key)

    def __repr__(self) -> str:
        return f"Lium({self._api!r})"

    def close(self) -> None:
        """Close what is kept open."""
        self._api.close()

    def list_offers(self, max_price: Decimal | None = None) -> list[Offer]:
        """Machines with free GPUs, cheapest first."""
        answer = self._get("/executors")
        if isinstance(answer, dict):  # Also seen wrapped.
            answer = answer.get("executors", answer.get("items"))
        offers = reading.readable(read_offer, reading.rows(answer, "executors"))
        within = [offer for offer in offers if max_price is None or offer.price_per_gpu_hour <= max_price]
        return sorted(within, key=lambda offer: (offer.price_per_gpu_hour, offer.id))

    def provision(self, spec: InstanceSpec, idempotency_key: str) -> Instance:
        """Template, ssh keys, rent; then a look at what came, guarded."""
        spec = checked(spec)
        offer = choose(spec, self.list_offers())
        template_id = self.ensure_template(spec)
        for key in spec.ssh_keys:
            self.ensure_ssh_key(key)
        instance_id = self._rent(spec, offer, template_id, idempotency_key)
        with guarded(self, instance_id):
            instance = self.status(instance_id)
            check_price(spec, instance)
            return instance

    def _rent(self, spec: InstanceSpec, offer: Offer, template_id: str, idempotency_key: str) -> str:
        answer = self._api.call(
            "POST",
            f"/executors/{quote(offer.id, safe='')}/rent",
            body={
                "pod_name": spec.name,
                "template_id": template_id,
                "user_public_key": list(spec.ssh_keys),
                "termination_hours": spec.max_lifetime_hours,
                "gpu_count": spec.gpu_count,
            },
            headers={"Idempotency-Key": idempotency_key},
            creates=True,
            refusal=_rent_refusal,
        )
        found = (answer.get("pod_id") or answer.get("id")) if isinstance(answer, dict) else None
        if not isinstance(found, str):
            raise OutcomeUnknown("the answer to the rent names no pod")
        return found

    def status(self, instance_id: str) -> Instance:
        """One pod. Raises NotFound."""
        return read_instance(reading.mapping(self._get(_pod(instance_id)), "pod"))

    def list_instances(self) -> list[Instance]:
        """All pods of the account; the listing has no pages."""
        return [read_instance(row) for row in reading.rows(self._get("/pods"), "pods")]

    def logs(self, instance_id: str, follow: bool = False) -> Iterator[bytes]:
        """The pod's log."""
        return self._api.stream(
            _pod(instance_id) + "/logs",
            {"tail": "1000", "follow": "true" if follow else "false"},
            endless=follow,
        )

    def terminate(self, instance_id: str) -> None:
        """DELETE; a pod that is gone is a success."""
        try:
            self._api.call("DELETE", _pod(instance_id), refusal=refusal)
        except NotFound:
            return

    def verify_terminated(self, instance_id: str) -> bool:
        """One good listing without it."""
        return all(instance.id != instance_id for instance in self.list_instances())

    def bound_lifetime(self, instance_id: str, ends_at: datetime) -> None:
        """Schedule the pod's removal. The provider overwrites it at boot: repeat it once the pod runs."""
        when = ends_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self._api.call(
            "POST",
            _pod(instance_id) + "/schedule-removal",
            body={"removal_scheduled_at": when},
            refusal=refusal,
        )

    def balance(self) -> Decimal:
        """USD left."""
        found = reading.price(reading.mapping(self._get("/users/me"), "account").get("balance"))
        if found is None:
            raise MalformedResponse("balance is missing")
        return found

    def ensure_ssh_key(self, public_key: str) -> None:
        """Register the key unless it is."""
        known = reading.rows(self._get("/ssh-keys"), "ssh keys")
        if all(row.get("public_key") != public_key for row in known):
            name = f"cs-{hashlib.sha256(public_key.encode()).hexdigest()[:12]}"
            self._api.call(
                "POST", "/ssh-keys", body={"name": name, "public_key": public_key}, refusal=refusal
            )

    def ensure_template(self, spec: InstanceSpec) -> str:
        """The id of the template that says exactly this. Raises TemplateMismatch for one of its name that does not."""
        wanted = build_template(spec)
        for row in reading.rows(self._get("/templates"), "templates"):
            if row.get("name") == wanted["name"] and row.get("is_private"):
                differing = [key for key in COMPARED if _plain(row.get(key)) != _plain(wanted[key])]
                if differing:
                    raise TemplateMismatch(f"Template {wanted['name']} differs in {', '.join(differing)}.")
                return reading.text(row, "id")
        answer = self._api.call("POST", "/templates", body=wanted, refusal=refusal)
        return reading.text(reading.mapping(answer, "template"), "id")

    def _get(self, path: str) -> Any:
        return self._api.call("GET", path, refusal=refusal)


COMPARED = (
    *("docker_image", "docker_image_digest", "internal_ports", "environment"),
    *("startup_commands", "entrypoint", "volumes"),
)


def build_template(spec: InstanceSpec) -> dict[str, Any]:
    """Everything that the pod's machine is told in advance; no secret is in it, and its name is made of it."""
    content: dict[str, Any] = {
        "docker_image": spec.image,
        "docker_image_tag": spec.tag,
        "docker_image_digest": spec.digest,
        "internal_ports": sorted({22, *spec.ports}),
        "environment": dict(sorted(spec.env.items())),
        "startup_commands": spec.startup_command,
        "entrypoint": "",
        "volumes": [],
        "is_private": True,
        "one_time_template": False,
        "category": "UBUNTU",
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    name = f"cs-{digest[:16]}"
    return {"name": name, "description": name, "readme": name, **content}


def read_offer(row: dict[str, Any]) -> Offer | None:
    """A machine's free GPUs; None when none are free or it has no price."""
    whole = reading.count(row.get("gpu_count")) or 0
    free = reading.count(row.get("available_gpu_count")) if "available_gpu_count" in row else whole
    per_gpu = reading.price(row.get("price_per_gpu"))
    if not whole or not free or not per_gpu:
        return None
    smallest = row.get("min_gpu_count_for_rental", 1)
    return Offer(
        id=reading.text(row, "id"),
        gpu_type=str(row.get("machine_name") or ""),
        gpu_count=free,
        price_per_gpu_hour=per_gpu,
        price_per_hour=per_gpu * free,
        provider="lium",
        smallest=whole if smallest is None else reading.count(smallest) or whole,
        raw=row,
    )


def read_instance(row: dict[str, Any]) -> Instance:
    """A pod; its price is for all of it."""
    told = reading.text(row, "status")
    states = [state for state, words in STATES.items() if told.upper() in words]
    return Instance(
        id=reading.text(row, "id"),
        name=str(row.get("pod_name") or ""),
        status=states[0] if states else InstanceState.ENDED,
        price_per_hour=reading.price(row.get("price")),
        provider="lium",
        told=told,
        ends_at=reading.moment(row.get("removal_scheduled_at")),
        raw=row,
    )


def refusal(status: int, told: Any) -> type[ProviderError] | None:
    """Which error a refusal is: three different things come as 403."""
    text = error_text(told)
    if status == 403 and told is None:
        return FirewallRefused
    if status == 403 and "balance" in text:
        return InsufficientCredit
    if status == 403 and "scope" in text:
        return ScopeMissing
    return None


def _rent_refusal(status: int, told: Any) -> type[ProviderError] | None:
    text = error_text(told)
    if status == 404 or (status in (400, 409, 422) and ("not available" in text or "already rented" in text)):
        return SoldOut
    return refusal(status, told)


def _pod(instance_id: str) -> str:
    return f"/pods/{quote(instance_id, safe='')}"


def _plain(value: Any) -> Any:
    """Empty values are one: the provider answers null where "" or [] was sent."""
    return value or None
