"""Every refusal that comes before any call."""

from dataclasses import replace
from decimal import Decimal

import pytest

from providers.base import InstanceSpec, Offer
from providers.errors import CostGuardrailError, SoldOut
from providers.guardrails import check_body, checked, choose
from providers.lium import Lium, build_template
from providers.targon import Targon, build_workload
from tests.providers.conftest import DIGEST

SPEC = InstanceSpec(
    name="local-0123456789abcdef01",
    image="registry.example.org/site/agent",
    digest=DIGEST,
    max_lifetime_hours=2,
    max_price_per_hour="3",
)
KEY = "ssh-ed25519 " + "A" * 68

LIFETIMES: list = [None, 0, -1, 0.99, "", "soon", True, float("nan"), float("inf"), 721, [2]]
PRICES: list = [None, 0, -1, "", "cheap", True, float("nan"), "Infinity", "1e999999999999"]


@pytest.mark.parametrize("value", LIFETIMES, ids=str)
def test_a_lifetime_that_is_no_bound(value):
    with pytest.raises(CostGuardrailError):
        checked(replace(SPEC, max_lifetime_hours=value))


@pytest.mark.parametrize("value", PRICES, ids=str)
def test_a_price_that_is_no_bound(value):
    with pytest.raises(CostGuardrailError):
        checked(replace(SPEC, max_price_per_hour=value))


def test_a_lifetime_is_cut_to_whole_hours():
    assert checked(replace(SPEC, max_lifetime_hours=1.9)).max_lifetime_hours == 1
    assert checked(replace(SPEC, max_lifetime_hours="720")).max_lifetime_hours == 720


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": ""},
        {"digest": "sha256:" + "AB" * 32},
        {"digest": "sha256:" + "ab" * 31},
        {"image": ""},
        {"image": "site/agent@sha256:aa"},
        {"image": "Site/agent"},
        {"image": "https://example.org/a"},
        {"name": "a" * 33},
        {"name": "A b"},
        {"gpu_count": 0},
        {"gpu_count": True},
        {"gpu_count": "1"},
        {"ports": (0,)},
        {"ssh_keys": ("a key",)},
        {"ssh_keys": (KEY + "\nssh-rsa x",)},
        {"env": {"A=B": ""}},
        {"tag": "a b"},
    ],
    ids=str,
)
def test_what_is_no_spec(fields):
    with pytest.raises(CostGuardrailError):
        checked(replace(SPEC, **fields))


@pytest.mark.parametrize("letter", list(";&|`$<>\n\r\\(){}*?[]!~#'\"\t\0^"))
def test_a_shells_letters_in_the_command(letter):
    with pytest.raises(CostGuardrailError):
        checked(replace(SPEC, startup_command=f"python3 -m agent {letter} more"))


LOCAL = [
    "http://127.0.0.1:8000/a",
    "https://localhost/a",
    "http://LOCALHOST.",
    "http://a.localhost",
    "https://[::1]/",
    "ws://0.0.0.0:1",
    "http://10.1.2.3/",
    "http://8.8.8.8",
    "http://user@127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
]
REMOTE = ["https://site.example.org/api", "http://site.example.org", "https://8.8.8.8/", "no address", ""]


@pytest.mark.parametrize("url", LOCAL)
def test_local_addresses_are_refused_in_commands_and_taken_out_of_variables(url):
    with pytest.raises(CostGuardrailError):
        checked(replace(SPEC, startup_command=f"agent --site={url}"))
    spec = checked(replace(SPEC, env={"SITE": url, "NAME": "x"}))
    assert spec.env == {"NAME": "x"}
    with pytest.raises(CostGuardrailError):
        check_body({"deep": [{"er": url}]}, "key")


@pytest.mark.parametrize("url", REMOTE)
def test_other_addresses_may_be_sent(url):
    assert checked(replace(SPEC, startup_command=f"agent {url}", env={"SITE": url})).env == {"SITE": url}


def test_no_body_carries_the_key_or_is_too_large():
    with pytest.raises(CostGuardrailError):
        check_body({"a": ["x the-secret-key y"]}, "the-secret-key")
    with pytest.raises(CostGuardrailError):
        check_body({"a": "x" * 65536}, "k")


def offer(name: str, gpus: int, per_gpu: str, smallest: int = 1) -> Offer:
    price = Decimal(per_gpu)
    return Offer(name, "NVIDIA H200", gpus, price, price * gpus, "lium", smallest)


def test_the_choice_is_the_exact_count_then_the_price_then_the_id():
    spec = checked(replace(SPEC, gpu_count=2))
    offers = [offer("a", 8, "1"), offer("d", 2, "2"), offer("c", 2, "1.5"), offer("b", 2, "1.5")]
    assert choose(spec, offers).id == "b"
    assert choose(spec, offers[:1]).id == "a"


def test_what_must_not_be_chosen():
    spec = checked(replace(SPEC, gpu_count=2))
    with pytest.raises(CostGuardrailError, match="cap"):
        choose(spec, [offer("a", 2, "3.01")])
    with pytest.raises(CostGuardrailError):
        choose(spec, [offer("a", 2, "0")])  # Free of charge is a mistake of theirs.
    for sold_out in ([], [offer("a", 1, "1")], [offer("a", 8, "1", smallest=8)]):
        with pytest.raises(SoldOut):
            choose(spec, sold_out)
    with pytest.raises(SoldOut):
        choose(replace(spec, gpu_type="B200"), [offer("a", 2, "1")])
    with pytest.raises(SoldOut):
        choose(replace(spec, offer_id="z"), [offer("a", 2, "1")])


def test_the_builders_say_what_the_spec_says_and_no_secret():
    spec = checked(replace(SPEC, env={"B": "2", "A": "1"}, ports=(8080,), startup_command="agent run"))
    template = build_template(spec)
    assert (template["docker_image"], template["docker_image_digest"]) == (spec.image, DIGEST)
    assert (template["is_private"], template["internal_ports"]) == (True, [22, 8080])
    assert build_template(replace(spec, env={}))["name"] != template["name"]
    workload = build_workload(spec, offer("h200", 1, "1"), ["key-1"])
    assert workload["image"] == f"{spec.image}@{DIGEST}"
    assert workload["commands"] == ["agent", "run"]
    assert "secret" not in str(template) + str(workload)


@pytest.mark.parametrize(
    "fields", [{"max_lifetime_hours": 0.5}, {"digest": ""}, {"max_price_per_hour": None}]
)
def test_a_refused_spec_costs_no_call(lium, targon, fields):
    for client, fake in ((Lium(lium.key, lium.url), lium), (Targon(targon.key, targon.url), targon)):
        with pytest.raises(CostGuardrailError):
            client.provision(replace(SPEC, **fields), "key-1")
        assert fake.requests == []


def test_a_price_over_the_cap_creates_nothing(lium, targon):
    spec = replace(SPEC, max_price_per_hour="0.01")
    for client, fake in ((Lium(lium.key, lium.url), lium), (Targon(targon.key, targon.url), targon)):
        with pytest.raises(CostGuardrailError):
            client.provision(spec, "key-1")
        assert {one.method for one in fake.requests} == {"GET"}
