"""A configuration by file, by setting and by REST as doors; see `doors.py`."""

import json
import re
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command

from environments.models import Engine
from jobs.api.pointers import pointer_of
from tests.environments.doors import Offer, Refusals

IMPORT = "/api/v1/admin/import"
OURS = {
    "storageExpiry": "storage_expiry",
    "minJobDuration": "min_job_duration",
    "maxJobDuration": "max_job_duration",
    "maxJobs": "max_jobs",
    "maxQueueWait": "max_queue_wait",
}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}


def file_of(offer: Offer) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The offer as a configuration, and our path of each of its values that has another there."""
    at = "[0].environments[0]"
    free, cores = offer["free"], offer["cores"]
    rows, paths = [], {f"{at}.cpuCores": "cores", f"{at}.fees": "price_lists"}
    every = [*offer["resources"].items(), *offer.get("more", [])]
    for number, (slug, each) in enumerate(every):
        rows.append(_resource_in_file(slug, each))
        path = f"{at}.resources[{number}]"
        paths |= {f"{path}.{name}": f"resources.{slug}.{name}" for name in ("total", "min", "max", "sharing")}
        paths |= {path: f"resources.{slug}", f"{path}.id": f"resources.{slug}"}
        paths |= {f"{path}.type": f"resources.{slug}.kind"}
        requests = f"{path}.init.deviceRequests.DeviceIDs"
        paths |= {requests: f"resources.{slug}.devices", f"{requests}[1]": f"resources.{slug}.devices"}
        if slug == "cpu" and not cores:
            paths[f"{path}.total"] = "cores"
        own = [one for one in offer["constraints"] if one["resource"] == slug]
        rows[-1]["constraints"] = [_constraint_in_file(one) for one in own]
        for place, one in enumerate(own):
            inner, ours = f"{path}.constraints[{place}]", _constraint_path(one)
            paths |= {f"{inner}.{name}": f"{ours}.{name}" for name in ("min", "max")}
            paths |= {f"{inner}.id": f"{ours}.target", f"{inner}.type": f"{ours}.target_kind"}
    if not cores and "total" not in offer["resources"].get("cpu", {"total": 0}):
        rows = [row for row in rows if row["id"] != "cpu"]
        paths[f"{at}.resources"] = "cores"
    environment = {"id": offer["slug"], "resources": rows}
    environment |= {THEIRS.get(name, name): value for name, value in offer["fields"].items()}
    environment |= {"cpuCores": cores} if cores else {}
    if offer["prices"]:
        prices = [
            {"id": slug, "price": price}
            for slug, price in [*offer["prices"].items(), *offer.get("again", [])]
        ]
        environment["fees"] = {"credit": [{"prices": prices}] * offer.get("lists", 1)}
        if "empty" in offer:
            environment["fees"][offer["empty"]] = [{"prices": []}]
            paths[f"{at}.fees.{offer['empty']}[0].prices"] = f"price_lists.{offer['empty']}.prices"
        paths[f"{at}.fees.credit[1]"] = "price_lists.credit"
        for number, row in enumerate(prices):
            price, ours = f"{at}.fees.credit[0].prices[{number}]", f"prices.{row['id']}"
            paths |= {
                f"{price}.price": ours,
                f"{price}.id": ours if number < len(offer["prices"]) else "prices",
            }
    if offer.get("access"):
        environment["access"] = {"addresses": offer["access"]}
        paths[f"{at}.access.value"] = "access.value"
    if free is not None:
        parts = [_resource_in_file(slug, each, free=True) for slug, each in free["resources"].items()]
        fields = {THEIRS.get(name, name): value for name, value in free["fields"].items()}
        environment["free"] = {**fields, "resources": parts}
        for number, part in enumerate(parts):
            path, ours = f"{at}.free.resources[{number}]", f"free_tier.resources.{part['id']}"
            paths |= {f"{path}.{name}": f"{ours}.{name}" for name in ("total", "min", "max")} | {
                f"{path}.id": ours
            }
        paths |= {f"{at}.free.{theirs}": f"free_tier.{ours}" for theirs, ours in OURS.items()}
    paths |= {f"{at}.{theirs}": ours for theirs, ours in OURS.items()}
    paths |= {f"{at}.{name}": name for name in ("labels", "resources") if f"{at}.{name}" not in paths}
    return [{"environments": [environment]}], paths


def _resource_in_file(slug: str, each: Mapping[str, Any], *, free: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"id": slug}
    if "devices" in each:
        row |= {"type": "gpu", "init": {"deviceRequests": {"Driver": "nvidia", "DeviceIDs": each["devices"]}}}
    kind = each.get("kind", slug)
    row |= {"type": kind} if kind != slug else {}
    for name in ("total", "min", "max", "sharing"):
        if name in each:
            sized = kind in ("ram", "disk") and type(each[name]) is int and each[name] >= 0
            row[name] = f"{each[name]}MiB" if sized else each[name]
    return row


def _constraint_in_file(one: Mapping[str, Any]) -> dict[str, Any]:
    row = {
        {"target": "id", "target_kind": "type"}.get(name, name): each
        for name, each in one.items()
        if name != "resource"
    }
    if one.get("target") in ("ram", "disk"):
        row |= {
            name: f"{row[name]}MiB"
            for name in ("min", "max")
            if type(row.get(name)) is int and row[name] >= 0
        }
    return row


def _constraint_path(one: Mapping[str, Any]) -> str:
    return f"constraints.{one['resource']}.{one.get('target') or one.get('target_kind', '')}.per_unit"


def as_text(configuration: Any) -> str:
    """JSON with every digit of a price."""
    prices = re.compile(r'"\\u0000([^"]+)"')
    return prices.sub(r"\1", json.dumps(configuration, default=lambda price: f"\0{price}"))


def _by_path(lines: list[str], paths: Mapping[str, str]) -> Refusals:
    found: Refusals = {}
    for line in lines:
        path, _, text = line.strip().partition(": ")
        found.setdefault(paths.get(path, path), []).append(text)
    return found


def _by_command(paths: Mapping[str, str], *arguments: str) -> Refusals:
    try:
        call_command("import_environments", *arguments, engine="other", stdout=StringIO())
    except CommandError as error:
        return _by_path(str(error).splitlines()[1:], paths)
    return {}


def by_file(folder: Path) -> Callable[[Engine, Offer], Refusals]:
    """`manage.py import_environments FILE`."""

    def submit(engine: Engine, offer: Offer) -> Refusals:
        configuration, paths = file_of(offer)
        (folder / "offer.json").write_text(as_text(configuration))
        return _by_command(paths, str(folder / "offer.json"))

    return submit


def by_settings(settings: Any) -> Callable[[Engine, Offer], Refusals]:
    """`manage.py import_environments --from-settings`, with DOCKER_COMPUTE_ENVIRONMENTS."""

    def submit(engine: Engine, offer: Offer) -> Refusals:
        configuration, paths = file_of(offer)
        settings.DOCKER_COMPUTE_ENVIRONMENTS = as_text(configuration)
        return _by_command(paths, "--from-settings")

    return submit


def by_rest(client: Any) -> Callable[[Engine, Offer], Refusals]:
    """`POST /api/v1/admin/import`."""

    def submit(engine: Engine, offer: Offer) -> Refusals:
        configuration, paths = file_of(offer)
        body = as_text({"configuration": configuration, "engine": engine.name})
        response = client.post(IMPORT, body, content_type="application/json")
        if response.status_code == 200:
            return {}
        pointers = {pointer_of(path, configuration): ours for path, ours in paths.items()}
        found: Refusals = {}
        for error in response.json()["errors"]:
            found.setdefault(pointers.get(error["pointer"], error["pointer"]), []).append(error["detail"])
        return found

    return submit
