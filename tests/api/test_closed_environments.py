"""Clients see the environments that they may use, in the paid tier or the free one; the others are not there."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from environments.models import AccessRule, Environment, FreeTier, PriceList
from jobs.models import Job
from tests.factories import Site, client_of, make_account, make_user

LIST = "/api/v1/environments"
ADDRESS = "0x967da4048cd07ab37855c090aaf366e4ce1b9f48"


def close(environment: Environment, kind: str, value: str, *tiers: str) -> None:
    for tier in tiers or ("paid", "free"):
        AccessRule.objects.create(environment=environment, tier=tier, kind=kind, value=value)


def sees(user: Any, environment: Environment) -> bool:
    """By the list, and alike by its own address."""
    client = client_of(user)
    listed = str(environment.public_id) in [offer["id"] for offer in client.get(LIST).json()]
    status = client.get(f"{LIST}/{environment.public_id}").status_code
    assert status == (200 if listed else 404)
    return listed


@pytest.fixture
def users(db: None) -> tuple[Any, Any]:
    """ada, who is in the group `lab`, and bob."""
    ada, bob = make_user("ada"), make_user("bob")
    ada.groups.add(Group.objects.create(name="lab"))
    return ada, bob


@pytest.mark.parametrize(("kind", "value"), [("user", "ada"), ("group", "lab")])
def test_closed_to_all_but_a_user_or_group(site: Site, users, kind: str, value: str):
    ada, bob = users
    assert sees(bob, site.environment)
    close(site.environment, kind, value)
    assert (sees(ada, site.environment), sees(bob, site.environment)) == (True, False)


def test_closed_by_address_is_closed_to_everybody(site: Site, users):
    close(site.environment, "address", ADDRESS)
    assert not any(sees(user, site.environment) for user in users)
    close(site.environment, "user", "ada", "free")
    assert [sees(user, site.environment) for user in users] == [True, False]


def test_one_open_tier_is_enough_if_it_is_there(site: Site, users):
    _, bob = users
    close(site.environment, "user", "ada", "paid")
    assert sees(bob, site.environment)
    FreeTier.objects.all().delete()
    assert not sees(bob, site.environment)
    AccessRule.objects.all().delete()
    assert sees(bob, site.environment)
    close(site.environment, "user", "ada", "free")  # a rule of a tier that is not there
    assert sees(bob, site.environment)
    PriceList.objects.all().delete()
    assert not sees(bob, site.environment)


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/quote"])
def test_a_guessed_name_does_not_tell_what_there_is(site: Site, users, path: str):
    """Neither that it is there, nor whether it drains."""
    _, bob = users
    make_account("bob's", bob)
    close(site.environment, "user", "ada")
    Environment.objects.update(state="draining")
    answers = [
        client_of(bob).post(path, {"environment": name, "command": ["true"], "tier": "free"}, format="json")
        for name in (str(site.environment), str(site.environment.public_id), "local/nothing")
    ]
    assert "There is no such environment. The list of environments tells" in answers[0].content.decode()
    assert len({(answer.status_code, answer.content) for answer in answers}) == 1
    assert not Job.objects.exists()


def offer_to(user: Any, environment: Environment) -> dict[str, Any]:
    offer: dict[str, Any] = client_of(user).get(f"{LIST}/{environment.public_id}").json()
    return offer


def test_open_tiers_are_told_whole(site: Site, users):
    offer = offer_to(users[1], site.environment)
    assert offer["prices"]
    assert offer["free_tier"]["resources"]
    to_all = {"open": True, "explained": "Open to everybody."}
    assert offer["access"] == {"paid": to_all, "free": to_all}


@pytest.mark.parametrize(("tier", "other"), [("paid", "free"), ("free", "paid")])
def test_of_a_closed_tier_neither_prices_nor_amounts_are_told(site: Site, users, tier: str, other: str):
    ada, bob = users
    close(site.environment, "user", "ada", tier)
    close(site.environment, "group", "lab", tier)
    offer = offer_to(bob, site.environment)
    hidden = (offer["prices"], offer["estimated_wait"]) if tier == "paid" else (offer["free_tier"],)
    told = offer["free_tier"] if tier == "paid" else offer["prices"]
    assert not any(hidden)
    assert told
    assert offer["access"][other] == {"open": True, "explained": "Open to everybody."}
    text = "Not open to you: only to named users and groups."
    assert offer["access"][tier] == {"open": False, "explained": text}
    whole = offer_to(ada, site.environment)
    assert whole["prices"]
    assert whole["free_tier"]
    text = "Open to you, and else only to named users and groups."
    assert whole["access"][tier] == {"open": True, "explained": text}


def test_a_member_of_no_account_is_told_who_makes_one(site: Site, users):
    _, bob = users
    body = {"environment": str(site.environment), "command": ["true"], "tier": "free"}
    answer = client_of(bob).post("/api/v1/jobs", body, format="json")
    assert answer.json()["errors"][0]["pointer"] == "/account"
    assert "an administrator makes you one" in answer.json()["errors"][0]["detail"]
    assert not Job.objects.exists()
