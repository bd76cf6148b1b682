"""Two environments of one engine offer the same two GPUs: what one of them gives out is taken in the other."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.urls import reverse

from compute_site.core.errors import CapacityUnavailable
from environments.described_nvml import DescribedNVML
from environments.devices import record_devices
from environments.importing import import_configuration
from environments.models import Environment
from environments.nvml import detect_devices
from tests.environments.conftest import acquire, give_back, take
from tests.factories import Site

CARDS = [{"uuid": f"GPU-{letter}", "name": "NVIDIA H200", "memory_mib": 143_771} for letter in "ab"]


@pytest.fixture
def pair(site: Site) -> tuple[Environment, Environment]:
    """Environments a and b with a core each and both GPUs, under names of their own."""
    record_devices(site.host, detect_devices(DescribedNVML({"driver": "570.1", "devices": CARDS})))
    request = {"Driver": "nvidia", "DeviceIDs": ["GPU-a", "GPU-b"]}
    entries = [
        {
            "id": slug,
            "resources": [
                *({"id": "cpu", "total": 2}, {"id": "ram", "total": 1}, {"id": "disk", "total": 1}),
                {"id": name, "type": "gpu", "total": 2, "init": {"deviceRequests": request}},
            ],
            "fees": {"credit": [{"prices": [{"id": name, "price": 1}]}]},
        }
        for slug, name in (("a", "gpu"), ("b", "card"))
    ]
    import_configuration(json.dumps([{"environments": entries}]).encode())
    return Environment.objects.get(slug="a"), Environment.objects.get(slug="b")


def free(client_api: Any) -> dict[str, int]:
    offers = {offer["name"]: offer["resources"] for offer in client_api.get("/api/v1/environments").json()}
    return {"a": offers["local/a"]["gpu"]["free"], "b": offers["local/b"]["card"]["free"]}


def test_the_api_shows_it_and_nobody_gets_it_twice(pair, client_api):
    first, second = pair
    assert free(client_api) == {"a": 2, "b": 2}
    holder, claim = take(first, gpu=1)
    assert free(client_api) == {"a": 1, "b": 1}
    with pytest.raises(CapacityUnavailable):
        take(second, card=2)
    _other, rest = take(second, card=1)
    assert {*claim.devices, *rest.devices} == {"GPU-a", "GPU-b"}
    assert free(client_api) == {"a": 0, "b": 0}
    for environment, name in ((first, "gpu"), (second, "card")):
        with pytest.raises(CapacityUnavailable):
            take(environment, **{name: 1})
    give_back(holder)
    assert free(client_api) == {"a": 1, "b": 1}
    _again, back = take(second, card=1)
    assert back.devices == claim.devices


def test_a_missing_card_is_offered_by_neither(pair, client_api, site):
    record_devices(site.host, detect_devices(DescribedNVML({"driver": "570.1", "devices": CARDS[1:]})))
    assert free(client_api) == {"a": 1, "b": 1}
    _holder, claim = take(pair[0], gpu=1)
    assert claim.devices == ("GPU-b",)
    assert free(client_api) == {"a": 0, "b": 0}


def test_the_admin_shows_on_both_pages_who_holds_it(pair, client):
    client.force_login(get_user_model().objects.create_superuser("olga", password="x"))
    holder, claim = take(pair[0], gpu=1)
    job = reverse("admin:jobs_job_of_attempt", args=[holder])
    for environment, other in (pair, pair[::-1]):
        page = client.get(f"/admin/environments/environment/{environment.pk}/change/").content.decode()
        rows = [part.partition("</tr>")[0] for part in page.split("<tr>")[1:]]
        rows = [row for row in rows if "this environment" in row and str(other) in row]
        held = [row for row in rows if claim.devices[0] in row]
        assert len(rows) == 2
        assert [job in row for row in held] == [True]
        assert "/of-attempt/" not in "".join(row for row in rows if row not in held)


def test_the_database_refuses_it_even_if_the_code_were_wrong(pair, monkeypatch):
    _holder, claim = take(pair[0], gpu=1)
    stolen = [
        (resource.pk, device.pk, device.uuid)
        for resource in pair[1].resources.filter(slug="card")
        for device in resource.devices.filter(uuid=claim.devices[0])
    ]
    monkeypatch.setattr("environments.reservations._free_devices", lambda *_: stolen)
    with pytest.raises(IntegrityError, match="device_once_live"), transaction.atomic():
        acquire(pair[1], pair[1].public_id, {"cpu": 1, "ram": 64, "disk": 64, "card": 1})
