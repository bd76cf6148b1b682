"""What every provider's client keeps, against its imitation; and what is particular to each."""

import logging
from dataclasses import replace
from decimal import Decimal

import pytest

from compute_site.embedded.fakes import Fault
from compute_site.embedded.fakes.server import FakeProvider
from providers import errors
from providers.base import InstanceState
from providers.lium import Lium
from providers.targon import Targon
from tests.providers.conftest import START, create_path, list_path, row_path, there
from tests.providers.test_guardrails import KEY, SPEC

SPEC = replace(SPEC, gpu_type="H200", ssh_keys=(KEY,))


@pytest.fixture(params=["lium", "targon"])
def both(request):
    fake = request.getfixturevalue(request.param)
    client = (Lium if request.param == "lium" else Targon)(fake.key, fake.url)
    yield client, fake
    client.close()


def test_list_rent_look_and_end(both):
    client, _fake = both
    offers = client.list_offers(Decimal("2.45"))
    assert offers
    assert all(offer.price_per_gpu_hour <= Decimal("2.45") for offer in offers)
    assert all(offer.price_per_hour == offer.price_per_gpu_hour * offer.gpu_count for offer in offers)
    instance = client.provision(SPEC, "key-1")
    assert (instance.name, instance.status) == (SPEC.name, InstanceState.PENDING)
    assert instance.price_per_hour is not None
    assert [one.id for one in client.list_instances()] == [instance.id]
    assert client.status(instance.id).status == InstanceState.RUNNING
    assert b"".join(client.logs(instance.id)) == b"pulling image\nready\n"
    assert client.balance() == Decimal("100.0")
    assert not client.verify_terminated(instance.id)
    client.terminate(instance.id)
    client.terminate(instance.id)  # What is gone is a success.
    assert client.verify_terminated(instance.id)
    assert client.list_instances() == []
    with pytest.raises(errors.NotFound):
        client.status(instance.id)


FAULTS = [
    (401, b"{}", errors.ProviderAuthError),
    (402, b"{}", errors.InsufficientCredit),
    (403, b'{"error": {"code": "forbidden", "message": "no"}}', errors.PermissionRefused),
    (404, b"{}", errors.NotFound),
    (429, b"{}", errors.RateLimited),
    (500, b"{}", errors.ProviderUnavailable),
    (302, b"", errors.MalformedResponse),
    (200, b"<html>", errors.MalformedResponse),
    (200, b"", errors.MalformedResponse),
    (200, b"null", errors.MalformedResponse),
    (200, b'{"error": "down"}', errors.MalformedResponse),
    (200, b'{"items": null}', errors.MalformedResponse),
    (200, b"[1]", errors.MalformedResponse),
    (200, b"[{}]", errors.MalformedResponse),
]


@pytest.mark.parametrize(("status", "body", "error"), FAULTS, ids=lambda value: str(value)[:30])
def test_a_listing_that_fails_is_an_error_and_never_empty(both, status, body, error):
    client, fake = both
    fake.faults.append(Fault("GET", list_path(fake), status=status, body=body, times=2))
    with pytest.raises(error) as caught:
        client.list_instances()
    assert type(caught.value) is error
    fake.faults = fake.faults[:1]
    with pytest.raises(error):
        client.verify_terminated("x")


def test_no_answer_is_an_error(both):
    client, fake = both
    fake.faults.append(Fault("GET", list_path(fake), drop=True))
    with pytest.raises(errors.ProviderUnavailable):
        client.list_instances()


LOST = [
    Fault("POST", "", status=502, body=b"bad gateway", after=True),
    Fault("POST", "", drop=True, after=True),
    Fault("POST", "", drop=True),
    Fault("POST", "", status=200, body=b"<html>ok</html>", after=True),
    Fault("POST", "", status=200, body=b"", after=True),
    Fault("POST", "", status=200, body=b'{"success": true}', after=True),
    Fault("POST", "", status=200, body=b'{"pod_id": 7, "uid": 7}', after=True),
    Fault("POST", "", status=409, body=b'{"error": "idempotency_in_progress"}', after=True),
]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: f"{fault.status}-{fault.drop}-{fault.body[:12]!r}")
def test_a_create_whose_answer_is_lost_is_unknown_and_sent_once(both, fault):
    client, fake = both
    fake.faults.append(replace(fault, path=create_path(fake)))
    with pytest.raises(errors.OutcomeUnknown) as caught:
        client.provision(SPEC, "key-1")
    assert caught.value.instance_id == ""
    assert len(fake.seen("POST", create_path(fake))) == 1


REFUSALS = [
    (429, b'{"detail": "try again in 17 seconds"}', errors.RateLimited),
    (401, b"{}", errors.ProviderAuthError),
    (422, b"{}", errors.ProviderError),
    (402, b"{}", errors.InsufficientCredit),
]


@pytest.mark.parametrize(("status", "body", "error"), REFUSALS)
def test_a_refused_create_is_not_repeated(both, status, body, error):
    client, fake = both
    fake.faults.append(Fault("POST", create_path(fake), status=status, body=body, times=9))
    with pytest.raises(error) as caught:
        client.provision(SPEC, "key-1")
    assert type(caught.value) is error
    assert len(fake.seen("POST", create_path(fake))) == 1
    assert not there(fake)
    if isinstance(caught.value, errors.RateLimited):
        assert caught.value.wait == 17


def test_a_fault_after_the_create_ends_what_was_created(both):
    client, fake = both
    fake.faults += [
        Fault("GET", row_path(fake), status=500),
        Fault("DELETE", row_path(fake), status=500, times=2),
        Fault("GET", list_path(fake), status=500),
    ]
    with pytest.raises(errors.ProviderUnavailable) as caught:
        client.provision(SPEC, "key-1")
    assert caught.value.method == "GET"  # The first error, not that of the cleaning up.
    assert caught.value.instance_id
    assert not there(fake)
    assert len(fake.seen("DELETE", row_path(fake))) == 4


def test_a_price_that_changed_at_the_create_ends_it(lium):
    def dearer(request, pod_id):
        return {**lium._find(pod_id), "price": 99.0}

    lium._pod = dearer
    with pytest.raises(errors.PriceTooHigh):
        Lium(lium.key, lium.url).provision(SPEC, "key-1")
    assert not lium.pods


def test_nothing_that_we_say_carries_the_key(both, caplog):
    client, fake = both
    caplog.set_level(logging.DEBUG)
    fake.faults.append(
        Fault("GET", list_path(fake), status=500, body=f'{{"message": "{fake.key}"}}'.encode())
    )
    with pytest.raises(errors.ProviderError) as caught:
        client.list_instances()
    said = [repr(client), repr(caught.value), str(caught.value), str(caught.value.__context__), caplog.text]
    client.provision(SPEC, "key-1")
    said += [str(one.body) for one in fake.requests] + [str(list(there(fake).values()))]
    assert not any(fake.key in text for text in said)


def test_a_redirect_is_not_followed(both):
    client, fake = both
    with FakeProvider("other") as other:
        moved = {"Location": other.url + "/pods"}
        fake.faults.append(Fault("GET", list_path(fake), status=307, headers=moved))
        with pytest.raises(errors.MalformedResponse):
            client.list_instances()
        assert other.requests == []


def test_lium_three_different_things_come_as_403(lium):
    client = Lium(lium.key, lium.url)
    for body, error in (
        (b'{"error": {"code": "insufficient_balance", "message": "Insufficient balance"}}', errors.InsufficientCredit),
        (b'{"message": "API key \'x\' does not have the \'rent\' scope"}', errors.ScopeMissing),
        (b"<html>403 Forbidden</html>", errors.FirewallRefused),
        (b'{"detail": "forbidden"}', errors.PermissionRefused),
    ):  # fmt: skip
        lium.faults.append(Fault("POST", create_path(lium), status=403, body=body))
        with pytest.raises(errors.ProviderError) as caught:
            client.provision(SPEC, "key-1")
        assert type(caught.value) is error
    assert not lium.pods


def test_lium_reads_counts_as_text_and_leaves_out_what_is_no_offer(lium):
    client = Lium(lium.key, lium.url)
    lium.executors += [{"id": "x", "available_gpu_count": 1}, {**lium.executors[0], "price_per_gpu": None}]
    offers = client.list_offers()
    assert [(one.gpu_count, one.smallest) for one in offers] == [(2, 1), (1, 1), (8, 8), (8, 1)]
    answer = client._api.call("GET", "/executors")
    lium._executors = lambda request: {"executors": answer}
    assert client.list_offers() == offers


def test_lium_rents_a_part_only_where_it_may(lium):
    client = Lium(lium.key, lium.url)
    instance = client.provision(replace(SPEC, gpu_count=2), "key-1")
    sent = lium.seen("POST", create_path(lium))[0]
    assert (sent.body["gpu_count"], sent.body["termination_hours"]) == (2, 2)
    assert sent.headers["idempotency-key"] == "key-1"
    assert instance.price_per_hour == Decimal("5.0")  # Not the cheaper machine, which rents whole only.


def test_lium_a_template_that_says_something_else_is_never_used(lium):
    client = Lium(lium.key, lium.url)
    assert client.ensure_template(SPEC) == client.ensure_template(SPEC)
    assert len(lium.templates) == 1
    for change in ({"docker_image_digest": "sha256:" + "00" * 32}, {"environment": {"A": "1"}}):
        before = {key: dict(value) for key, value in lium.templates.items()}
        next(iter(lium.templates.values())).update(change)
        with pytest.raises(errors.TemplateMismatch):
            client.provision(SPEC, "key-1")
        lium.templates = before
    assert not lium.pods


def test_lium_the_removal_time_is_sent_in_utc(lium):
    client = Lium(lium.key, lium.url)
    instance = client.provision(SPEC, "key-1")
    client.bound_lifetime(instance.id, START)
    assert client.status(instance.id).ends_at == START


def test_targon_a_failed_deploy_deletes_the_workload(targon):
    client = Targon(targon.key, targon.url)
    for fault, error in (
        (Fault("POST", ".*/deploy", status=500), errors.ProviderUnavailable),
        (Fault("POST", ".*/deploy", status=502, after=True), errors.ProviderUnavailable),
        (Fault("POST", ".*/deploy", status=400, body=b'{"error": "x", "reason": "insufficient credits"}'), errors.InsufficientCredit),
    ):  # fmt: skip
        targon.faults.append(fault)
        with pytest.raises(error):
            client.provision(SPEC, "key-1")
        assert not targon.workloads


def test_targon_prices_are_divided_and_pages_followed(targon):
    client = Targon(targon.key, targon.url)
    prices = {one.id: (one.price_per_gpu_hour, one.price_per_hour) for one in client.list_offers()}
    assert prices["h200-large"] == (Decimal("2.2"), Decimal("17.6"))
    assert "b200-small" not in prices
    for number in range(5):
        client.provision(replace(SPEC, name=f"local-{number}"), "key")
    assert len({one.id for one in client.list_instances()}) == 5


def test_targon_suspended_is_there_and_deleted_is_not(targon):
    client = Targon(targon.key, targon.url)
    instance = client.provision(SPEC, "key-1")
    targon.workloads[instance.id]["state"]["status"] = "suspended"
    assert [one.status for one in client.list_instances()] == [InstanceState.ENDED]
    targon.workloads[instance.id]["state"]["status"] = "deleted"
    assert client.list_instances() == []


def test_targon_pages_that_do_not_end_are_malformed(targon):
    targon._workloads = lambda request: {"items": [], "next_cursor": "1"}
    with pytest.raises(errors.MalformedResponse):
        Targon(targon.key, targon.url).list_instances()
