"""The REST API and the admin: staff only, caps at the door, and a key that never comes out."""

import pytest
from django.urls import reverse

from compute_site.embedded.fakes import Fault
from providers import renting
from providers.models import Pod, ProviderAccount
from tests.factories import client_of, make_user
from tests.providers.conftest import START, WANTED, check, fresh, running

BASE = "/api/v1/providers"
BODY = {**WANTED, "account": "lium"}


@pytest.fixture
def staff(db):
    user = make_user("olga")
    user.is_staff = user.is_superuser = True
    user.save()
    return client_of(user)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "accounts"),
        ("post", "accounts"),
        ("put", "accounts/{}/key"),
        ("get", "offers"),
        ("get", "pods"),
        ("post", "pods"),
        ("get", "pods/{}"),
        ("post", "pods/{}/terminate"),
        ("get", "pods/{}/logs"),
    ],
)
def test_only_staff(client_api, client, at_lium, lium, method, path):
    address = f"{BASE}/{path.format(at_lium.public_id)}"
    assert getattr(client_api, method)(address).status_code == 403
    assert getattr(client, method)(address).status_code == 401
    assert lium.requests == []


def test_a_key_goes_in_and_never_comes_out(staff, lium, caplog):
    body = {
        "name": "a",
        "kind": "lium",
        "base_url": lium.url,
        "key": lium.key,
        "daily_cap": "10",
        "monthly_cap": 20,
    }
    made = staff.post(f"{BASE}/accounts", body)
    assert (made.status_code, made.json()["has_key"], made.json()["daily_cap"]) == (201, True, "10")
    account = ProviderAccount.objects.get()
    assert account.open_key() == lium.key
    assert staff.put(f"{BASE}/accounts/{account.public_id}/key", {"key": "another-key-1"}).status_code == 204
    assert fresh_key(account) == "another-key-1"
    bad = staff.put(f"{BASE}/accounts/{account.public_id}/key", {"key": "secret with spaces"})
    assert bad.status_code == 400
    said = [answer.content.decode() for answer in (made, bad, staff.get(f"{BASE}/accounts"))] + [caplog.text]
    assert not any(key in text for text in said for key in (lium.key, "another-key-1", "secret with"))


def fresh_key(account):
    return ProviderAccount.objects.get(pk=account.pk).open_key()


def test_a_refused_account_leaves_nothing(staff, lium):
    body = {"name": "a", "kind": "lium", "key": "k", "daily_cap": "1", "monthly_cap": "1"}
    for change in (
        {},
        {"key": lium.key, "base_url": "http://example.org"},
        {"key": lium.key, "daily_cap": "-1"},
        {"x": 1},
    ):
        assert staff.post(f"{BASE}/accounts", {**body, **change}).status_code == 400
    assert not ProviderAccount.objects.exists()


def test_offers_of_all_accounts(staff, at_lium, at_targon):
    offers = staff.get(f"{BASE}/offers?gpu_type=h200&max_price=2.4").json()
    assert [(one["account"], one["price_per_gpu_hour"], one["gpu_count"]) for one in offers] == [
        ("lium", "2", 8),
        ("targon", "2.2", 8),
        ("targon", "2.4", 1),
    ]
    assert staff.get(f"{BASE}/offers?max_price=cheap").status_code == 400


def test_a_provider_that_fails_is_told_as_such(staff, at_lium, lium):
    for status, told in ((500, 503), (429, 503), (401, 502), (402, 402)):
        lium.faults.append(Fault("GET", "/executors", status=status, body=b'{"message": "inner words"}'))
        answer = staff.get(f"{BASE}/offers")
        assert answer.status_code == told
        assert "inner words" not in answer.content.decode()


def test_rent_look_and_terminate(staff, at_lium, lium):
    made = staff.post(f"{BASE}/pods", BODY, headers={"Idempotency-Key": "k"})
    assert (made.status_code, made.json()["status"], made.json()["committed_cost"]) == (201, "intent", "6")
    again = staff.post(f"{BASE}/pods", BODY, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
    pod = Pod.objects.get()
    renting.rent(pod.pk)
    address = f"{BASE}/pods/{pod.public_id}"
    assert staff.get(address).json()["events"][-1]["kind"] == "provisioning"
    assert staff.get(f"{address}/logs").content == b"pulling image\nready\n"
    for _ in range(2):
        ended = staff.post(f"{address}/terminate")
        assert (ended.status_code, ended.json()["status"], ended.json()["end_reason"]) == (
            202,
            "terminating",
            "operator",
        )
    assert [one["id"] for one in staff.get(f"{BASE}/pods").json()] == [str(pod.public_id)]
    assert lium.key not in str(staff.get(address).json())


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"max_lifetime_hours": 0.5}, 422),
        ({"max_lifetime_hours": True}, 422),
        ({"max_lifetime_hours": None}, 400),
        ({"max_price_per_hour": 0}, 422),
        ({"digest": "latest"}, 422),
        ({"startup_command": "sh -c 'x'"}, 422),
        ({"max_price_per_hour": "60"}, 422),  # Over the daily cap.
        ({"gpu_count": 0}, 400),
        ({"account": "nobody"}, 400),
        ({"max_price": "1"}, 400),
        ({"ssh_keys": ["x"]}, 422),
    ],
    ids=str,
)
def test_what_is_refused_at_the_door(staff, at_lium, lium, change, status):
    answer = staff.post(f"{BASE}/pods", {**BODY, **change})
    assert answer.status_code == status, answer.json()
    for cap in ("max_lifetime_hours", "max_price_per_hour"):
        assert staff.post(f"{BASE}/pods", {key: BODY[key] for key in BODY if key != cap}).status_code == 400
    assert not Pod.objects.exists()
    assert lium.requests == []


def test_the_admin_takes_a_key_and_shows_none(admin_client, at_lium, at_targon, lium):
    address = reverse("admin:providers_provideraccount_change", args=[at_lium.pk])
    page = admin_client.get(address)
    assert page.status_code == 200
    form = page.context["adminform"].form
    fields = {name: form.initial.get(name, "") for name in form.fields}
    fields |= {"enabled": "on", "key": "a-new-key-123"}
    assert admin_client.post(address, fields).status_code == 302
    assert fresh_key(at_lium) == "a-new-key-123"
    fields |= {"seen_version": 2, "key": "", "max_pods": 7}
    assert admin_client.post(address, fields).status_code == 302
    assert fresh_key(at_lium) == "a-new-key-123"
    moved = admin_client.post(address, {**fields, "seen_version": 3, "base_url": "https://example.org"})
    assert moved.status_code == 200
    assert "enter it again" in moved.content.decode()
    for text in (page.content.decode(), moved.content.decode(), admin_client.get(address).content.decode()):
        assert "a-new-key-123" not in text
        assert lium.key not in text


def test_the_admin_lists_and_terminates(admin_client, at_lium):
    pod = running(at_lium)
    for name in ("provideraccount", "pod", "orphan"):
        assert admin_client.get(reverse(f"admin:providers_{name}_changelist")).status_code == 200
    page = admin_client.get(reverse("admin:providers_pod_change", args=[pod.pk]))
    assert "provisioning" in page.content.decode()
    data = {"action": "terminate_pods", "_selected_action": [pod.pk]}
    admin_client.post(reverse("admin:providers_pod_changelist"), data)
    assert (fresh(pod).status, fresh(pod).end_reason) == ("terminating", "operator")
    check(START)


def test_a_pod_that_is_not_as_seen_is_not_ended(staff, at_lium):
    pod = renting.ask(at_lium, WANTED)[0]
    address = f"{BASE}/pods/{pod.public_id}"
    tag = staff.get(address)["ETag"]
    assert staff.get(address, headers={"If-None-Match": tag}).status_code == 304
    Pod.objects.filter(pk=pod.pk).update(last_error="full")
    changed = staff.get(address, headers={"If-None-Match": tag})
    assert (changed.status_code, changed["ETag"] != tag) == (200, True)
    before = Pod.objects.values().get()
    stale = staff.post(f"{address}/terminate", headers={"If-Match": tag})
    assert (stale.status_code, stale.json()["code"]) == (412, "version_changed")
    assert Pod.objects.values().get() == before
    assert staff.post(f"{address}/terminate", headers={"If-Match": changed["ETag"]}).status_code == 202
    assert fresh(pod).end_reason == "operator"
