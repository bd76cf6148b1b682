"""Signed requests: each check, its place in the order, and that a refusal burns nothing."""

import json
import time
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.test import Client

from tests.fleet.remote import through_django
from workers.fleet import signing
from workers.fleet.client import RefusedRequest, SignedClient, bind
from workers.fleet.models import Binding, Nonce, OwnerKey, RemoteWorker, Replica, Unit
from workers.fleet.passes import run_pass
from workers.fleet.registration import revoke, status_now, store_stale

HEADERS = (
    signing.KEY_HEADER,
    signing.TIMESTAMP_HEADER,
    signing.NONCE_HEADER,
    signing.SIGNATURE_HEADER,
)


def beat(remote, headers=None, body=b"{}", client=None):
    path = f"/api/v1/workers/{remote.id}/heartbeat"
    headers = headers or (client or remote.client).headers("POST", path, "", body)
    status, answer = through_django("POST", f"http://testserver{path}", headers, body)
    return status, json.loads(answer).get("code")


def other(remote, **changes):
    values = {
        "url": "http://testserver",
        "site_id": remote.client.site_id,
        "key": remote.client.key,
        **changes,
    }
    return SignedClient(**values, transport=through_django)


@pytest.mark.django_db
def test_each_check_refuses_and_burns_nothing(fleet):
    remote, stranger = fleet.worker(), fleet.worker()
    path = f"/api/v1/workers/{remote.id}/heartbeat"
    good = remote.client.headers("POST", path, "", b"{}")
    before = Nonce.objects.count()
    late = other(remote, clock=lambda: time.time() - 301).headers("POST", path, "", b"{}")
    early = other(remote, clock=lambda: time.time() + 310).headers("POST", path, "", b"{}")
    elsewhere = other(remote, site_id="another").headers("POST", path, "", b"{}")
    key = {signing.KEY_HEADER: signing.key_text(stranger.client.key)}
    table = [
        *((good | {name: ""}, 401, "headers") for name in HEADERS),
        (good | {signing.NONCE_HEADER: "short"}, 401, "headers"),
        (late, 401, "skew"),
        (early, 401, "skew"),
        (elsewhere, 401, "signature"),
        (good | key, 401, "signature"),
        (good | {signing.KEY_HEADER: "ed25519:AAAA"}, 401, "signature"),
        (remote.client.headers("PUT", path, "", b"{}"), 401, "signature"),
        (remote.client.headers("POST", path + "x", "", b"{}"), 401, "signature"),
        (remote.client.headers("POST", path, "a=1", b"{}"), 401, "signature"),
        (remote.client.headers("POST", path, "", b"{ }"), 401, "signature"),
        (stranger.client.headers("POST", path, "", b"{}"), 403, "not_entitled"),
        (late | {signing.SIGNATURE_HEADER: "AAAA"}, 401, "skew"),  # skew comes before the signature
    ]
    for headers, status, code in table:
        assert beat(remote, headers) == (status, code)
    assert Nonce.objects.count() == before
    assert beat(remote, good) == (200, None)  # none of them has used its nonce
    assert beat(remote, good) == (409, "nonce_used")
    assert Nonce.objects.count() == before + 1


@pytest.mark.django_db
def test_sorted_query_and_readers(fleet):
    remote = fleet.worker()
    told = remote.client.call("GET", "/workers/active?z=1&owner=nobody")
    assert told == []
    assert [row["id"] for row in remote.client.call("GET", "/workers")] == [remote.id]
    stranger = other(remote, key=Ed25519PrivateKey.generate())
    with pytest.raises(RefusedRequest) as refused:
        stranger.call("GET", "/workers")
    assert (refused.value.status, refused.value.code) == (403, "not_entitled")


@pytest.mark.django_db
def test_internal_token_opens_the_active_list_and_nothing_else(fleet, settings, client_api):
    fleet.worker()

    def get(path, token):
        return Client().get(path, headers={"Authorization": f"Bearer {token}"}).status_code

    assert get("/api/v1/workers/active", "") == 401  # an empty configured token admits nobody
    settings.FLEET_INTERNAL_TOKEN = "secret"
    assert get("/api/v1/workers/active", "secret") == 200
    assert get("/api/v1/workers/active", "Secret") == 401
    assert get("/api/v1/workers", "secret") == 401
    assert get("/api/v1/workers/units", "secret") == 401
    assert client_api.get("/api/v1/workers").status_code == 200  # a token of the site reads the fleet


@pytest.mark.django_db
def test_registration_by_binding(fleet):
    remote = fleet.worker(active=False)
    now = int(time.time())
    forged = remote.binding() | {"signature": "AAAA"}
    other_site = bind(remote.owner_key, "another", remote.binding()["binding"])
    changed = remote.binding()
    changed["binding"] |= {"provider": "mine"}
    for body, code in [
        (forged, "binding_invalid"),
        (other_site, "binding_invalid"),
        (changed, "binding_invalid"),
        (remote.binding(not_after=now - 1), "binding_expired"),
        (remote.binding(not_before=now + 100), "binding_expired"),
        (remote.binding(worker_key=signing.key_text(remote.owner_key)), "binding_invalid"),
        (remote.binding(owner_key=signing.key_text(remote.client.key)), "unknown_owner"),
    ]:
        with pytest.raises(RefusedRequest) as refused:
            remote.client.call("POST", "/workers/register", body)
        assert (refused.value.status, refused.value.code) == (403, code)
    assert not RemoteWorker.objects.exists()
    assert not Binding.objects.exists()
    assert not Nonce.objects.exists()
    binding = remote.binding()
    assert remote.client.call("POST", "/workers/register", binding)["status"] == "pending"
    assert (
        remote.client.call("POST", "/workers/register", binding)["status"] == "pending"
    )  # a pod that restarts
    assert RemoteWorker.objects.count() == Binding.objects.count() == 1


@pytest.mark.django_db
def test_no_rebind_no_revival(fleet):
    remote, thief = fleet.worker(), fleet.worker()
    stolen = thief.binding(worker_key=signing.key_text(remote.client.key))
    before = Nonce.objects.count()
    with pytest.raises(RefusedRequest) as refused:
        remote.client.call("POST", "/workers/register", stolen)
    assert (refused.value.status, refused.value.code) == (409, "bound_elsewhere")
    assert Nonce.objects.count() == before
    assert remote.row.owner == remote.owner
    owner = other(remote, key=remote.owner_key)
    assert owner.call("POST", f"/workers/{remote.id}/retire")["status"] == "retired"
    for call in (remote.beat, remote.register, remote.pull):
        with pytest.raises(RefusedRequest) as refused:
            call()
        assert (refused.value.status, refused.value.code) == (403, "retired")
    assert remote.row.status == "retired"
    OwnerKey.objects.filter(owner=thief.owner).update(revoked_at="2026-01-01T00:00:00Z")
    with pytest.raises(RefusedRequest, match="unknown_owner"):
        thief.register(serial="2")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "ended",
    [
        lambda key: Binding.objects.update(not_after=key.created_at),
        lambda key: revoke(Binding.objects.get(owner_key=key)),
        lambda key: OwnerKey.objects.filter(pk=key.pk).update(revoked_at=key.created_at),
    ],
    ids=["expired", "revoked", "of a revoked key"],
)
def test_a_binding_that_has_ended_lets_nobody_in(fleet, ended):
    remote = fleet.worker()
    fleet.job()
    run_pass()
    before = Nonce.objects.count()
    ended(OwnerKey.objects.get(owner=remote.owner))
    for call in (remote.beat, remote.pull):
        with pytest.raises(RefusedRequest) as refused:
            call()
        assert (refused.value.status, refused.value.code) == (403, "binding_ended")
    assert Nonce.objects.count() == before
    assert Replica.objects.filter(worker=remote.row).get().status == "assigned"


@pytest.mark.django_db
def test_stale_is_derived_and_stored(fleet):
    remote, reader = fleet.worker(), fleet.worker()
    late = remote.row.heartbeat_at + timedelta(seconds=121)
    assert status_now(remote.row, late) == "stale"
    assert remote.row.status == "active"
    RemoteWorker.objects.filter(pk=remote.row.pk).update(
        heartbeat_at=remote.row.heartbeat_at - timedelta(seconds=130)
    )
    rows = {row["id"]: row["status"] for row in reader.client.call("GET", "/workers")}
    assert rows[remote.id] == "stale"  # before any pass
    assert [row["id"] for row in reader.client.call("GET", "/workers/active")] == [reader.id]
    with pytest.raises(RefusedRequest, match="not_active"):
        remote.pull()
    run_pass()
    assert remote.row.status == "stale"
    assert store_stale(late) == 1  # the reader, by the same clock
    assert remote.beat()["status"] == "active"


@pytest.mark.django_db
def test_unknown_worker_is_404(fleet):
    remote = fleet.worker()
    RemoteWorker.objects.filter(public_id=remote.id).delete()
    for ask in (remote.beat, remote.pull):  # whichever an agent asks first: it registers again
        with pytest.raises(RefusedRequest) as refused:
            ask()
        assert refused.value.status == 404


@pytest.mark.django_db
def test_off_means_no_address_and_no_row(fleet, settings):
    remote = fleet.worker(active=False)
    settings.FLEET_ENABLED = False
    job = fleet.job()
    run_pass()
    for path in ("", "/register", "/active", "/units", "/assignments/pull"):
        for method in ("get", "post", "options"):
            there = getattr(Client(), method)(f"/api/v1/workers{path}")
            nowhere = getattr(Client(), method)("/api/v1/nothing")
            assert there.status_code == nowhere.status_code == 404
            assert there.json() | {"instance": ""} == nowhere.json() | {"instance": ""}
    with pytest.raises(RefusedRequest) as refused:
        remote.register()
    assert refused.value.status == 404
    assert not RemoteWorker.objects.exists()
    assert not Unit.objects.exists()
    assert not Nonce.objects.exists()
    job.refresh_from_db()
    assert job.status == "queued"
