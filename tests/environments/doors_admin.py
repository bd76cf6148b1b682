"""The admin's page for a new environment as a door; see `doors.py`."""

import re
from collections.abc import Mapping
from typing import Any

from environments.admin.environment_form import TABS
from environments.models import Device, Engine
from tests.environments.doors import Offer, Refusals

ADD = "/admin/environments/environment/add/"


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
            rows = [{"currency": "credit", "prices": lines}] * offer.get("lists", 1)
            self._rows(data, "price_lists", [*rows, *({"currency": name} for name in _empty(offer))])
        rules = [{"tier": "paid", "kind": "address", "value": value} for value in offer.get("access", ())]
        self._rows(data, "access_rules", rules)
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
            match = re.match(r"([\w. ]+): (.*)", text, re.DOTALL)
            path, message = (match[1], match[2]) if match else ("__all__", text)
            path = next((tab for tab, title in TABS.items() if title == path), path)
            if "." not in path:
                found.setdefault(path, []).append(message)
        return found

    def _of_a_row(self, form: Any) -> Refusals:
        found: Refusals = {}
        for name, texts in form.errors.items():
            path = f"{form.path()}{name}"
            if name == "prices" and form[name].value() is None:
                found[path] = list(texts)
                continue
            if name == "prices":
                for text in texts:
                    slug, _, message = text.rpartition(": ")
                    found.setdefault(f"prices.{slug}" if slug else "prices", []).append(message)
                continue
            path = re.sub(r"resources\.(.*)\.free_(\w+)$", r"free_tier.resources.\1.\2", path)
            path = path.replace("chosen_devices", "devices").replace("_slug", "").removesuffix(".__all__")
            found[path] = list(texts)
        return found


def _empty(offer: Offer) -> list[str]:
    """Currencies of price lists without a price."""
    return [offer["empty"]] if "empty" in offer else []
