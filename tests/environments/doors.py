"""One wrong environment through every door: each takes the same offer in its own form and answers refusals by our paths.

`doors_admin.py` and `doors_files.py` are those of people and of files. An offer is a mapping in our words and units
(MiB). A door answers {path: messages}; empty when it takes the offer.
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, transaction

from compute_site.core.db import constraint_name
from environments.models import (
    Engine,
    Environment,
    FreeResource,
    FreeTier,
    Price,
    Resource,
)
from environments.setup import create_environment

Offer = dict[str, Any]
Refusals = dict[str, list[str]]


def plain_offer() -> Offer:
    """Cores 4 and 5, 2 GiB of memory, 4 GiB of disk, one price."""
    return {
        "slug": "web",
        "fields": {},
        "cores": "4-5",
        "resources": {"cpu": {}, "ram": {"total": 2048}, "disk": {"total": 4096}},
        "free": None,
        "prices": {"cpu": 1},
        "constraints": [],
    }


def by_code(engine: Engine, offer: Offer) -> Refusals:
    """`create_environment`, as management commands call it."""
    resources = offer["resources"]
    devices = {slug: each["devices"] for slug, each in resources.items() if "devices" in each}
    free = offer["free"]
    try:
        create_environment(
            engine,
            offer["slug"],
            cpu=offer["cores"] or resources["cpu"].get("total"),
            ram_mib=resources["ram"].get("total"),
            disk_mib=resources["disk"].get("total"),
            devices=devices,
            counters={
                slug: each["total"] for slug, each in resources.items() if each.get("kind") == "counter"
            },
            limits={
                slug: (each.get("min", 0), each.get("max"))
                for slug, each in resources.items()
                if "min" in each or "max" in each
            },
            free=None if free is None else {slug: each["total"] for slug, each in free["resources"].items()},
            free_fields=free and free["fields"],
            prices=offer["prices"],
            constraints=offer["constraints"],
            **offer["fields"],
        )
    except ValidationError as error:
        found = error.message_dict
        return {path.removesuffix(".per_minute"): texts for path, texts in found.items()}
    return {}


def changed(offer: Offer, path: str, value: Any) -> None:
    """Put a value into an offer: "resources.ram.min", "free.fields.max_jobs"; None takes it out."""
    *steps, last = path.split(".")
    place: Any = offer
    for step in steps:
        place = place.setdefault(step, {})
    if value is None and isinstance(place, dict) and steps:
        place.pop(last, None)
    else:
        place[last] = value


def by_row(environment: Environment, wrong: Mapping[str, Any]) -> tuple[Refusals, str]:
    """Rows of a right environment, made wrong: what `full_clean` says, and which constraint refuses a raw update."""
    found: Refusals = {}
    refusing = ""
    for path, changes in _by_row(wrong).items():
        row = _row(environment, path)
        for name, value in changes.items():
            setattr(row, name, value)
        try:
            row.full_clean()
        except ValidationError as error:
            for name, texts in error.message_dict.items():
                field = f"{path}.{name}".strip(".").removesuffix(".__all__").removesuffix(".per_minute")
                found[field] = texts
        try:
            with transaction.atomic():
                type(row).objects.filter(pk=row.pk).update(**changes)
                transaction.set_rollback(True)
        except IntegrityError as error:
            refusing = constraint_name(error)
        except (ArithmeticError, ValueError, TypeError, ValidationError, DataError):
            pass  # no such value fits the column
    return found, refusing


def _by_row(wrong: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for path, value in wrong.items():
        head, _, name = path.rpartition(".")
        head, name = (path, "per_minute") if path.startswith("prices.") else (head, name)
        head = {"fields": "", "free.fields": "free_tier"}.get(head, head.replace("free.", "free_tier."))
        rows.setdefault(head, {})[name] = value
    return rows


def _row(environment: Environment, path: str) -> Any:
    slug = path.rpartition(".")[2]
    if path.startswith("free_tier.resources."):
        return FreeResource.objects.get(free_tier__environment=environment, resource__slug=slug)
    if path.startswith("resources."):
        return Resource.objects.get(environment=environment, slug=slug)
    if path.startswith("prices."):
        return Price.objects.get(price_list__environment=environment, resource__slug=slug)
    return FreeTier.objects.get(environment=environment) if path == "free_tier" else environment
