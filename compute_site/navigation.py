"""The sidebar of the admin: pages in the order of an operator's day. What nobody placed stands below “More”."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

PLACES: dict[str, dict[str, str]] = {
    "Now": {"jobs.job": "work", "environments.reservation": "lock", "workers.worker": "engineering"},
    "What is offered": {
        "environments.environment": "inventory_2",
        "environments.host": "dns",
        "environments.engine": "deployed_code",
        "environments.device": "memory",
        "workers.image": "layers",
        "workers.imagescan": "policy",
    },
    "Money": {
        "billing.account": "account_balance_wallet",
        "billing.ledgertransaction": "receipt_long",
        "billing.hold": "hourglass_top",
    },
    "Rented machines": {
        "providers.pod": "cloud",
        "providers.provideraccount": "key",
        "providers.orphan": "cloud_off",
    },
    "Fleet": {
        "fleet.remoteworker": "lan",
        "fleet.unit": "call_split",
        "fleet.owner": "badge",
        "fleet.binding": "handshake",
        "fleet.fleetpolicy": "rule",
        "fleet.audit": "fact_check",
        "fleet.fault": "report",
    },
    "People": {
        "auth.user": "person",
        "auth.group": "group",
        "environments.walletaddress": "wallet",
        "environments.accesslist": "checklist",
        "jobs.token": "vpn_key",
    },
}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups with the pages that this person may see."""
    seen = {
        f"{app['app_label']}.{model['object_name'].lower()}": model
        for app in admin.site.get_app_list(request)
        for model in app["models"]
        if model["admin_url"]
    }
    groups = [_group("", [_item("Overview", "dashboard", reverse("admin:index"), request, exact=True)])]
    for title, places in PLACES.items():
        items = [_page(seen.pop(name), icon, request) for name, icon in places.items() if name in seen]
        groups.append(_group(title, items))
    groups.append(_group("More", [_page(model, "more_horiz", request) for model in seen.values()]))
    return [group for group in groups if group["items"]]


def _group(title: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "separator": False, "items": items}


def _page(model: dict[str, Any], icon: str, request: HttpRequest) -> dict[str, Any]:
    return _item(str(model["name"]), icon, model["admin_url"], request)


def _item(
    title: str, icon: str, address: str, request: HttpRequest, *, exact: bool = False
) -> dict[str, Any]:
    active = request.path == address if exact else request.path.startswith(address)
    return {"title": title, "icon": icon, "link": address, "active": lambda request: active}
