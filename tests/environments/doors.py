"""One wrong environment through every door: each takes the same offer in its own form and answers refusals by our paths.

An offer is a mapping in our words and units (MiB). A door answers {path: messages}; empty when it takes the offer.
"""

import json
import re
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import DataError, IntegrityError, transaction

from compute_site.core.db import constraint_name
from environments.models import (
    Device,
    Engine,
    Environment,
    FreeResource,
    FreeTier,
    Price,
    Resource,
)
from environments.setup import create_environment
from jobs.api.pointers import pointer_of

Offer = dict[str, Any]
Refusals = dict[str, list[str]]
IMPORT = "/api/v1/admin/import"
ADD = "/admin/environments/environment/add/"
OURS = {
    "storageExpiry": "storage_expiry",
    "minJobDuration": "min_job_duration",
    "maxJobDuration": "max_job_duration",
    "maxJobs": "max_jobs",
    "maxQueueWait": "max_queue_wait",
}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}


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


class AdminForm:
    """The page for a new environment. `empty` is what a browser posts from it untouched."""

    def __init__(self, browser: Any, empty: Mapping[str, Any]) -> None:
        self.browser, self.empty = browser, empty

    def __call__(self, engine: Engine, offer: Offer) -> Refusals:
        response = self.browser.post(ADD, self.posted(engine, offer))
        if response.status_code == 302:
            return {}
        found = self._of_the_form(response.context_data["adminform"].form.errors)
        for inline in response.context_data["inline_admin_formsets"]:
            for form in inline.formset.forms:
                found |= self._of_a_row(form)
        if not offer["cores"] and "resources.cpu.total" in found:  # the total decides which cores it gets
            found["cores"] = found.pop("resources.cpu.total")
        return found

    def posted(self, engine: Engine, offer: Offer) -> dict[str, Any]:
        """The fields of the page, filled in."""
        kept = {name: value for name, value in self.empty.items() if not name.startswith("resources-")}
        data = {
            **kept,
            "engine": engine.pk,
            "slug": offer["slug"],
            "cores": offer["cores"] or "",
            **offer["fields"],
        }
        labels = offer["fields"].get("labels", {})
        data["labels"] = "\n".join(f"{name} {text}" for name, text in labels.items())
        rows = [self._resource(slug, each, offer["free"]) for slug, each in offer["resources"].items()]
        self._rows(
            data,
            "resources",
            rows + [self._resource(slug, each, None) for slug, each in offer.get("more", [])],
        )
        if offer["free"] is not None:
            free = {
                "min_job_duration": 60,
                "max_job_duration": 3600,
                "max_jobs": 3,
                "storage_expiry": 604_800,
            }
            self._rows(data, "free_tier", [free | offer["free"]["fields"]])
        if offer["prices"]:
            lines = "\n".join(
                f"{slug} {price}" for slug, price in [*offer["prices"].items(), *offer.get("again", [])]
            )
            self._rows(data, "price_lists", [{"currency": "credit", "prices": lines}] * offer.get("lists", 1))
        given = {"resource": "resource_slug", "target": "target_slug"}
        rows = [{given.get(name, name): text for name, text in each.items()} for each in offer["constraints"]]
        self._rows(
            data, "constraints", [{"per_unit": "on", "min": 0, "target_kind": ""} | row for row in rows]
        )
        return {name: value for name, value in data.items() if value is not None}

    def _resource(self, slug: str, each: Mapping[str, Any], free: Any) -> dict[str, Any]:
        kind = each.get("kind", "device" if "devices" in each else slug)
        row = {
            "slug": slug,
            "kind": kind,
            "min": each.get("min", 0),
            "max": each.get("max"),
            "total": each.get("total"),
        }
        row["sharing"] = each.get("sharing", "shared_exclusive" if kind == "device" else "exclusive")
        if "devices" in each:
            row["chosen_devices"] = [Device.objects.get(uuid=uuid).pk for uuid in each["devices"]]
        part = (free or {"resources": {}})["resources"].get(slug, {})
        return row | {f"free_{name}": amount for name, amount in part.items()}

    def _rows(self, data: dict[str, Any], prefix: str, rows: list[dict[str, Any]]) -> None:
        data[f"{prefix}-TOTAL_FORMS"], data[f"{prefix}-INITIAL_FORMS"] = len(rows), 0
        for number, row in enumerate(rows):
            data.update({f"{prefix}-{number}-{name}": value for name, value in row.items()})

    def _of_the_form(self, errors: Mapping[str, list[str]]) -> Refusals:
        """What has no field anywhere on the page stands above the form only, its path before it."""
        found = {name: list(texts) for name, texts in errors.items() if name != "__all__"}
        for text in errors.get("__all__", []):
            match = re.match(r"([a-z_.]+): (.*)", text, re.DOTALL)
            path, message = (match[1], match[2]) if match else ("__all__", text)
            if "." not in path:
                found.setdefault(path, []).append(message)
        return found

    def _of_a_row(self, form: Any) -> Refusals:
        found: Refusals = {}
        for name, texts in form.errors.items():
            path = f"{form.path()}{name}"
            if name == "prices":
                for text in texts:
                    slug, _, message = text.rpartition(": ")
                    found.setdefault(f"prices.{slug}" if slug else "prices", []).append(message)
                continue
            path = re.sub(r"resources\.(.*)\.free_(\w+)$", r"free_tier.resources.\1.\2", path)
            path = path.replace("chosen_devices", "devices").replace("_slug", "").removesuffix(".__all__")
            found[path] = list(texts)
        return found


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
        paths[f"{at}.fees.credit[1]"] = "price_lists.credit"
        for number, row in enumerate(prices):
            price, ours = f"{at}.fees.credit[0].prices[{number}]", f"prices.{row['id']}"
            paths |= {
                f"{price}.price": ours,
                f"{price}.id": ours if number < len(offer["prices"]) else "prices",
            }
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
