"""Engines and environments in the nested form of Ocean Node's configuration: what an import of it would make again."""

import json
import re
from collections import defaultdict
from decimal import Decimal, localcontext
from typing import Any
from uuid import uuid4

from django.db.models import QuerySet

from environments.bounds import GIB, SIZED
from environments.models import (
    NVIDIA,
    AccessKind,
    Constraint,
    Device,
    DeviceInit,
    Engine,
    EngineKind,
    Environment,
    EnvironmentState,
    FreeResource,
    FreeTier,
    InitKind,
    Resource,
    ResourceKind,
    ScanPolicy,
    Tier,
)
from environments.resources import AMOUNTS, usual_sharing


def as_json(configuration: list[dict[str, Any]] | dict[str, Any]) -> str:
    """JSON text in which every price keeps all its digits."""
    mark = uuid4().hex  # no text of the configuration looks like it
    text = json.dumps(configuration, indent=2, ensure_ascii=False, default=lambda number: f"{mark}{number:f}")
    return re.sub(rf'"{mark}([0-9.]+)"', r"\1", text)


def docker_engines() -> QuerySet[Engine]:
    """The engines that a configuration can speak of, in the order of an export."""
    return Engine.objects.filter(kind=EngineKind.DOCKER).select_related("host").order_by("name")


def export_engine(engine: Engine) -> dict[str, Any]:
    """The engine with all its environments but the retired; the benchmark's is told by its switch alone."""
    rows = engine.environments.exclude(state=EnvironmentState.RETIRED).filter(benchmark=False)
    rows = rows.select_related("engine__host")
    return {
        **_endpoint(engine),
        "imageRetentionDays": engine.image_retention_days,
        "imageCleanupInterval": engine.image_cleanup_interval,
        "paymentClaimInterval": engine.payment_claim_interval,
        **_scanning(engine),
        "enableBenchmark": engine.enable_benchmark,
        "environments": [export_environment(row) for row in rows.order_by("slug")],
    }


def export_environment(environment: Environment) -> dict[str, Any]:
    """One environment; keys that say nothing are left out. Its cores are named, so that they stay the same."""
    cores = list(environment.cores.order_by("index").values_list("index", flat=True))
    tier = FreeTier.objects.filter(environment=environment).first()
    found = {
        "id": environment.slug,
        "description": environment.description,
        "labels": environment.labels,
        **_durations(environment),
        "maxJobs": environment.max_jobs,
        "maxQueueWait": environment.max_queue_wait,
        "enableNetwork": environment.enable_network or None,
        "cpuCores": cores,
        "resources": [_resource(row) for row in environment.resources.order_by("pk") if row.total],
        "access": _access(environment, Tier.PAID),
        "fees": _fees(environment),
        "free": None if tier is None else _free(tier),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {}, [])}


def _endpoint(engine: Engine) -> dict[str, Any]:
    if engine.endpoint.startswith("unix://"):
        return {"socketPath": engine.endpoint.removeprefix("unix://")}
    host, _, port = engine.endpoint.removeprefix("tcp://").rpartition(":")
    tls = {"caPath": engine.tls_ca, "certPath": engine.tls_certificate, "keyPath": engine.tls_key}
    return {"host": host, "port": int(port), **{key: value for key, value in tls.items() if value}}


def _scanning(engine: Engine) -> dict[str, Any]:
    """In Ocean Node's own word where it has one."""
    policy = engine.scan_policy
    own = {"scanPolicy": policy} if policy == ScanPolicy.REPORT else {}
    return {"scanImages": policy != ScanPolicy.OFF, **own}


def _durations(terms: Environment | FreeTier) -> dict[str, int]:
    return {
        "storageExpiry": terms.storage_expiry,
        "maxJobDuration": terms.max_job_duration,
        "minJobDuration": terms.min_job_duration,
    }


def _written(amount: int) -> int | str:
    """MiB as a file has them: GiB where they are whole, else text with its unit."""
    return amount // GIB if amount % GIB == 0 else f"{amount}MiB"


def _amounts(kind: str, row: Resource | FreeResource) -> dict[str, int | str]:
    found = {name: getattr(row, name) for name in AMOUNTS}
    return {name: _written(amount) if kind in SIZED else amount for name, amount in found.items()}


def _resource(row: Resource) -> dict[str, Any]:
    devices = list(row.devices.order_by("pk"))
    found: dict[str, Any] = {
        "id": row.slug,
        "type": "gpu" if row.kind == ResourceKind.DEVICE else row.kind,
        **_amounts(row.kind, row),
    }
    if row.sharing != usual_sharing(row.kind):
        found["sharing"] = row.sharing
    if constraints := _constraints(row):
        found["constraints"] = constraints
    if devices:
        told = {
            "description": devices[0].model,
            "platform": devices[0].platform,
            "driverVersion": devices[0].driver_version,
            "memoryTotal": f"{devices[0].memory_mib} MiB" if devices[0].memory_mib else "",
        }
        found |= {key: value for key, value in told.items() if value}
        found["init"] = _init(devices)
    return found


def _init(devices: list[Device]) -> dict[str, Any]:
    """Devices that a driver hands out by id, and others with what a container needs: for each its own."""
    by_driver = [device.uuid for device in devices if device.platform == NVIDIA]
    others = [_other_device(device) for device in devices if device.platform != NVIDIA]
    request = {"Driver": "nvidia", "DeviceIDs": by_driver, "Capabilities": [["gpu"]]}
    return ({"deviceRequests": request} if by_driver else {}) | ({"devices": others} if others else {})


def _other_device(device: Device) -> dict[str, Any]:
    rows = DeviceInit.objects.filter(device=device).order_by("name")
    listed = {kind: [row for row in rows if row.kind == kind] for kind in InitKind.values}
    found = {
        "Devices": [f"{row.name}:{row.value}" for row in listed[InitKind.PATH]],
        "GroupAdd": sorted(int(row.name) for row in listed[InitKind.GROUP]),
        "Env": {row.name: row.value for row in listed[InitKind.VARIABLE]},
    }
    return {"id": device.uuid, **{key: value for key, value in found.items() if value}}


def _constraints(resource: Resource) -> list[dict[str, Any]]:
    rows = resource.constraints.select_related("target")
    return [_constraint(row) for row in sorted(rows, key=_by_target)]


def _by_target(row: Constraint) -> tuple[str, str, bool]:
    return row.target_kind, row.target.slug if row.target else "", row.per_unit


def _constraint(row: Constraint) -> dict[str, Any]:
    kind = row.target.kind if row.target else row.target_kind
    word = "gpu" if row.target_kind == ResourceKind.DEVICE else row.target_kind
    found: dict[str, Any] = {"id": row.target.slug} if row.target else {"type": word}
    for name, amount in (("min", row.min or None), ("max", row.max)):
        if amount is not None:
            found[name] = _written(amount) if kind in SIZED else amount
    found |= {} if row.per_unit else {"perUnit": False}
    return found | ({"aggregate": True} if row.aggregate else {})


def _free(tier: FreeTier) -> dict[str, Any]:
    parts = tier.resources.select_related("resource").order_by("resource")
    found: dict[str, Any] = {
        **_durations(tier),
        "maxJobs": tier.max_jobs,
        "resources": [{"id": part.resource.slug, **_amounts(part.resource.kind, part)} for part in parts],
    }
    if tier.allow_image_build:
        found["allowImageBuild"] = True
    if access := _access(tier.environment, Tier.FREE):
        found["access"] = access
    return found


def _fees(environment: Environment) -> dict[str, Any]:
    fees: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in environment.price_lists.order_by("currency"):
        chain, _, token = row.currency.partition(":")
        prices = row.prices.select_related("resource").order_by("resource")
        listed = [
            {"id": price.resource.slug, "price": _price(price.per_minute, price.resource.kind)}
            for price in prices
        ]
        fees[chain].append({"feeToken": token, "prices": listed} if token else {"prices": listed})
    return dict(fees)


def _price(per_minute: Decimal, kind: str) -> Decimal:
    with localcontext(prec=100):
        return (per_minute * (GIB if kind in SIZED else 1)).normalize()


def _access(environment: Environment, tier: Tier) -> dict[str, Any]:
    rules: dict[str, list[str]] = defaultdict(list)
    for rule in environment.access_rules.filter(tier=tier).order_by("kind", "value"):
        rules[rule.kind].append(rule.value)
    lists: dict[str, list[str]] = defaultdict(list)
    named = rules.get(AccessKind.ACCESS_LIST, [])
    for value in named:
        chain, colon, contract = value.partition(":")
        if colon:
            lists[chain].append(contract)
    found = {
        "addresses": rules.get(AccessKind.ADDRESS),
        "accessLists": [dict(lists)] if lists else None,
        "lists": [value for value in named if ":" not in value],
        "users": rules.get(AccessKind.USER),
        "groups": rules.get(AccessKind.GROUP),
    }
    return {key: value for key, value in found.items() if value}
