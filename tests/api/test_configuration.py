"""Configurations in and out by REST: for administrators, all or nothing, every refusal at its value."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from rest_framework.test import APIClient

from environments.importing import export_engine
from environments.models import Engine, Environment, Host
from jobs.api.pointers import pointer_of
from tests.environments.conftest import make_engine, make_host
from tests.environments.importing.conftest import TOKEN, everything, nested, offer, prices, resource
from tests.factories import client_of, make_account, make_user, submit

IMPORT, EXPORT = "/api/v1/admin/import", "/api/v1/admin/export"
FIRST = "/configuration/0/environments/0"


@pytest.fixture
def host(db: None) -> Host:
    return make_host()


@pytest.fixture
def engine(host: Host) -> Engine:
    return make_engine(host)


@pytest.fixture
def staff(db: None) -> APIClient:
    user = make_user("olga")
    user.is_staff = user.is_superuser = True
    user.save()
    return client_of(user)


def send(client: APIClient, configuration: Any, **more: Any) -> Any:
    return client.post(IMPORT, {"configuration": configuration, **more}, format="json")


def refused(client: APIClient, body: dict[str, Any], pointer: str, words: str) -> None:
    """400 at this pointer, and nothing is written."""
    before = everything()
    response = client.post(IMPORT, body, format="json")
    assert response.status_code == 400, response.content
    assert response["Content-Type"] == "application/problem+json"
    found = {error["pointer"]: error["detail"] for error in response.json()["errors"]}
    assert words in found.get(pointer, ""), found
    assert everything() == before


def test_the_plan_is_told_part_by_part(staff: APIClient, engine: Engine):
    first = send(staff, nested(offer(storageExpirySecs=1)), dry_run=True).json()
    assert (first["applied"], first["changes_anything"]) == (False, True)
    (created,) = first["created"]
    assert (created["kind"], created["name"], created["pointer"]) == ("environment", "local/a", FIRST)
    assert {"path": "resources[ram].total", "before": None, "after": "2"} in created["values"]
    hint = "unknown key, ignored (is storageExpiry meant?)."
    assert {"pointer": f"{FIRST}/storageExpirySecs", "message": hint} in first["notes"]
    assert not Environment.objects.exists()
    done = send(staff, nested(offer(storageExpirySecs=1))).json()
    assert done == {**first, "applied": True}
    rows = everything()
    again = send(staff, nested(offer())).json()
    assert (again["applied"], again["changes_anything"]) == (True, False)
    assert [kept["name"] for kept in again["kept"]] == ["local", "local/a"]
    assert everything() == rows


def test_what_changes_goes_and_stays(staff: APIClient, engine: Engine):
    send(staff, nested(offer("a"), offer("b")))
    told = send(staff, nested(offer("a", maxJobs=3))).json()
    assert told["changed"][0]["values"] == [{"path": "maxJobs", "before": None, "after": "3"}]
    assert [change["name"] for change in told["left_alone"]] == ["local/b"]
    told = send(staff, nested(offer("a")), replace=True, activate=True).json()
    assert told["changed"][0]["values"] == [{"path": "maxJobs", "before": "3", "after": None}]
    (retired,) = told["retired"]
    assert (retired["name"], retired["pointer"], retired["why"]) == (
        "local/b",
        "/configuration/0",
        "it is not in the file",
    )
    assert [change["name"] for change in told["activated"]] == ["local"]
    engine.refresh_from_db()
    assert engine.state == "active"


def test_one_engine_without_a_list_and_every_digit_of_a_price(staff: APIClient, engine: Engine):
    fee = {"5": [{"prices": [{"id": "cpu", "price": 1}]}]}
    one = nested(offer(fees=fee))[0]
    text = json.dumps({"configuration": one, "tokens": {"5": TOKEN}, "engine": "local"})
    text = text.replace('"price": 1}', '"price": 12345678901.123456789012345678}')
    assert staff.post(IMPORT, text, content_type="application/json").json()["applied"]
    assert [f"{price:f}" for price in prices(Environment.objects.get()).values()] == [
        "12345678901.123456789012345678"
    ]
    assert "12345678901.123456789012345678" in staff.get(EXPORT).content.decode()
    bad = {**one, "environments": [offer(maxJobs=-1)]}
    refused(staff, {"configuration": bad}, "/configuration/environments/0/maxJobs", "Found -1")


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({}, "/configuration", "required"),
        ({"configuration": None}, "/configuration", "null"),
        ({"configuration": "text"}, "/configuration", "a list of engines belongs here"),
        ({"configuration": []}, "/configuration", "a list of engines belongs here"),
        ({"configuration": [5]}, "/configuration/0", "an object belongs here"),
        ({"configuration": nested(offer(), offer("b", maxJobs="x"))}, "/configuration/0/environments/1/maxJobs", "“x”"),
        ({"configuration": nested(offer(cpuCores=[99]))}, f"{FIRST}/cpuCores", "has no core 99"),
        ({"configuration": nested(offer(resources=[resource("cpu", 1)]))}, f"{FIRST}/resources", "There is no disk"),
        ({"configuration": nested(offer(fees={"a/b.c": [{"prices": []}]}))}, f"{FIRST}/fees/a~1b.c/0", "a chain id"),
        ({"configuration": nested(offer()), "engine": "none"}, "/configuration/0", "There is no engine none"),
        ({"configuration": nested(offer()), "host": "none"}, "/configuration/0", "There is no host none"),
        ({"configuration": nested(offer()) * 2, "engine": "local"}, "/configuration", "import them one by one"),
        ({"configuration": nested(offer()), "replace": "yes"}, "/replace", "true or false"),
        ({"configuration": nested(offer()), "dry_run": 1}, "/dry_run", "true or false"),
        ({"configuration": nested(offer()), "tokens": {"x": "0x1"}}, "/tokens", "is no token of a chain"),
        ({"configuration": nested(offer()), "dryRun": True}, "/dryRun", "Unknown field"),
    ],
    ids=str,
)  # fmt: skip
def test_refusals(staff: APIClient, engine: Engine, body: dict[str, Any], pointer: str, words: str):
    refused(staff, body, pointer, words)


def test_an_engine_that_cannot_be_activated(staff: APIClient, engine: Engine):
    """What is against it stands in an environment that the file does not have; all of it is rolled back."""
    send(staff, nested(offer("a")))
    Environment.objects.get().price_lists.all().delete()
    body = {"configuration": nested(offer("b")), "activate": True}
    refused(staff, body, "/configuration/0", "local cannot be activated: There is neither a price")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[1]", b'{"configuration": "\\u0000"}', b'{"configuration": NaN}'),
        *(b'{"configuration": 1e99999999999999999999}', b'{"configuration": 1e-99999999999999999999}'),
    ],
)
def test_guards_of_every_route(staff: APIClient, engine: Engine, body: bytes):
    before = everything()
    response = staff.post(IMPORT, body, content_type="application/json")
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert everything() == before


def test_for_administrators_only(engine: Engine):
    user = make_user("ada")
    for client, status in ((APIClient(), 401), (client_of(user), 403)):
        before = everything()
        for response in (send(client, nested(offer())), client.get(EXPORT)):
            assert response.status_code == status
            assert response["Content-Type"] == "application/problem+json"
        assert everything() == before


def test_only_who_may_do_so_in_the_admin(engine: Engine):
    """Staff that may see environments exports and imports nothing."""
    user = make_user("eve")
    user.is_staff = True
    user.save()
    before = everything()
    assert send(client_of(user), nested(offer())).status_code == 403
    assert client_of(user).get(EXPORT).status_code == 403
    for model in ("engine", "environment"):
        user.user_permissions.add(Permission.objects.get(codename=f"view_{model}"))
    assert client_of(user).get(EXPORT).status_code == 403  # it tells the rest too
    of_all = Permission.objects.filter(content_type__app_label="environments", codename__startswith="view_")
    user.user_permissions.add(*of_all)
    assert client_of(user).get(EXPORT).status_code == 200
    assert send(client_of(user), nested(offer())).status_code == 403
    assert everything() == before


def test_export(staff: APIClient, engine: Engine, host: Host):
    send(staff, nested(offer()))
    make_engine(host, "other")
    assert [len(one["environments"]) for one in staff.get(EXPORT).json()] == [1, 0]
    one = staff.get(EXPORT, {"engine": "local"})
    assert one["Content-Type"] == "application/json"
    assert not send(staff, one.json(), engine="local").json()["changes_anything"]
    assert one.json()[0]["environments"][0]["id"] == export_engine(engine)["environments"][0]["id"] == "a"
    unknown = staff.get(EXPORT, {"engine": "none"})
    assert unknown.status_code == 400
    assert unknown.json()["errors"][0]["detail"] == "There is no engine none; there are: local, other."


def test_the_offer_is_capped_to_the_host(staff: APIClient, engine: Engine):
    large = offer(free={"resources": [resource(name, max=1) for name in ("cpu", "disk")] + [resource("ram")]})
    large["resources"][1] = resource("ram", 500)
    large["fees"] = {"credit": [{"prices": [{"id": "cpu", "price": 1}]}]}
    assert send(staff, nested(large), activate=True).json()["applied"]
    (shown,) = staff.get("/api/v1/environments").json()
    part = {"kind": "ram", "total": 16_384, "free": 16_384, "min": 0, "max": 16_384}
    assert shown["resources"]["ram"] == shown["free_tier"]["resources"]["ram"] == part
    user = make_user("ada")
    make_account("ada's", user)
    request = {"environment": "local/a", "command": ["true"], "resources": {"ram": 20_000}}
    response = client_of(user).post("/api/v1/jobs", request, format="json")
    assert response.status_code == 400
    assert response.json()["errors"][0]["detail"] == "ram: asked 20000, at most 16384 per job."
    assert submit(user, environment="local/a", resources={"ram": 16_384}).terms["resources"]["ram"] == 16_384


def test_pointers_follow_the_keys_that_are_there():
    configuration = [{"a.b[0]": [{"c": 1}]}]
    assert pointer_of("[0].a.b[0][0].c", configuration) == "/configuration/0/a.b[0]/0/c"
    assert pointer_of("[0].not.there[2]", configuration) == "/configuration/0/not/there/2"
    assert pointer_of("[3]", configuration) == "/configuration/3"
    assert pointer_of("file", configuration) == "/configuration"
