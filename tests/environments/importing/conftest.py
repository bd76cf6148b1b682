"""Configurations as other programs write them, in small."""

import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from environments.importing import Choice, Plan, import_configuration
from environments.models import (
    AccessRule,
    Constraint,
    Core,
    Device,
    DeviceInit,
    Engine,
    Environment,
    FreeResource,
    FreeTier,
    Host,
    Price,
    PriceList,
    Resource,
    ResourceDevice,
)
from tests.environments.conftest import make_engine

TOKEN = "0x967da4048cD07aB37855c090aAF366e4ce1b9F48"
MODELS: list[Any] = [
    *(AccessRule, Constraint, Core, Device, DeviceInit, Engine, Environment, FreeResource, FreeTier, Host),
    *(Price, PriceList, Resource, ResourceDevice),
]


def resource(name: str, total: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": name, **({} if total is None else {"total": total}), **more}


def gpu(name: str, *uuids: str, **more: Any) -> dict[str, Any]:
    request = {"Driver": "nvidia", "DeviceIDs": list(uuids), "Capabilities": [["gpu"]]}
    return {"id": name, "type": "gpu", "total": len(uuids), "init": {"deviceRequests": request}, **more}


def fees(**prices: Any) -> dict[str, Any]:
    return {
        "1": [{"feeToken": TOKEN, "prices": [{"id": name, "price": price} for name, price in prices.items()]}]
    }


def offer(name: str = "a", **more: Any) -> dict[str, Any]:
    """A plain environment: two cores, 2 GiB of memory, 4 GiB of disk, one price."""
    resources = [resource("cpu", 2), resource("ram", 2), resource("disk", 4)]
    return {"id": name, "resources": resources, "fees": fees(cpu=1), **more}


def nested(*environments: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"socketPath": "/var/run/docker.sock", "environments": list(environments), **more}]


def run(configuration: Any, **choice: Any) -> Plan:
    text = json.dumps(configuration) if not isinstance(configuration, str) else configuration
    return import_configuration(text.encode(), Choice(**choice))


def told(plan: Plan) -> list[str]:
    """The notes as text."""
    return [str(note) for note in plan.notes]


def everything() -> dict[str, list[Any]]:
    """Every row of the app."""
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in MODELS}


def refused(configuration: Any, path: str, words: str = "", **choice: Any) -> None:
    """The import is refused at this path, and nothing is written."""
    before = everything()
    with pytest.raises(ValidationError) as error:
        run(configuration, **choice)
    found = error.value.message_dict
    assert path in found, found
    assert words in " ".join(found[path]), found
    assert everything() == before


def whats(plan: Plan) -> dict[str, str]:
    """What is done with each engine and environment."""
    return {change.name.split()[-1]: change.what for change in plan.changes}


def amounts(environment: Environment) -> dict[str, tuple[int, int, int]]:
    rows = environment.resources.values_list("slug", "total", "min", "max")
    return {slug: (total, least, most) for slug, total, least, most in rows}


def prices(environment: Environment) -> dict[tuple[str, str], Decimal]:
    rows = Price.objects.filter(price_list__environment=environment)
    return {(row.price_list.currency, row.resource.slug): row.per_minute for row in rows}


def cores(slug: str) -> list[int]:
    return list(Core.objects.filter(environment__slug=slug).order_by("index").values_list("index", flat=True))


@pytest.fixture
def large(db: None) -> Engine:
    """The engine of a host with 64 cores, 512 GiB and 4 TiB."""
    host = Host.objects.create(name="large", cpu_count=64, memory_mib=512 * 1024, disk_mib=4096 * 1024)
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(64))
    return make_engine(host)
