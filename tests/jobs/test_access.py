"""Access rules: none = open, any = closed to all others, each tier for itself."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from compute_site.core.errors import NotAdmitted
from compute_site.core.models import save_clean
from environments.models import AccessList, AccessListEntry, AccessRule, WalletAddress
from jobs.models import Job
from tests.factories import make_user, submit


def allow(site, kind: str, value: str, tier: str = "free") -> None:
    rule = AccessRule(environment=site.environment, tier=tier, kind=kind, value=value)
    rule.full_clean()
    rule.save()


def refused(user) -> None:
    with pytest.raises(
        NotAdmitted, match="The free tier of this environment is not open to you: only to "
    ) as error:
        submit(user, tier="free")
    assert (error.value.code, error.value.field) == ("no_access", "environment")
    assert not Job.objects.exists()


def test_no_rule_is_open_and_a_rule_of_the_other_tier_closes_nothing(site, user, account):
    submit(user, tier="free")
    allow(site, "user", "somebody", tier="paid")
    submit(user, tier="free")


@pytest.mark.parametrize(
    ("kind", "value"), [("user", "bob"), ("group", "lab"), ("address", "0xAB"), ("access_list", "1:0x1")]
)
def test_any_rule_closes_to_all_others(site, user, account, kind, value):
    allow(site, kind, value)
    refused(user)


def test_by_name_and_by_group(site, user, account):
    allow(site, "group", "lab")
    refused(user)
    user.groups.add(Group.objects.create(name="lab"))
    submit(user, tier="free")
    user.groups.clear()
    allow(site, "user", "ada")
    submit(user, tier="free")


def test_an_address_means_the_same_in_any_case(site):
    allow(site, "address", "0xAbC")
    assert AccessRule.objects.get().value == "0xabc"
    with pytest.raises(ValidationError, match="already has this access rule"):
        allow(site, "address", "0xABC")
    with pytest.raises(ValidationError, match="whom the rule lets in"):
        allow(site, "user", " ")


def test_through_the_api(site, client_api, account):
    allow(site, "user", "bob")
    answer = client_api.post(
        "/api/v1/jobs", {"environment": "local/main", "command": ["true"], "tier": "free"}
    )
    assert answer.status_code == 403
    assert answer.json()["code"] == "no_access"


def test_a_refusal_tells_the_kinds_of_rules_and_nobody_s_name(site, client_api, account):
    for kind, value in (("user", "bob"), ("address", "0xab"), ("access_list", "1:0xc")):
        allow(site, kind, value)
    answer = client_api.post(
        "/api/v1/jobs", {"environment": "local/main", "command": ["true"], "tier": "free"}
    )
    assert answer.status_code == 403
    assert "only to named users and wallet addresses and access lists." in answer.content.decode()
    assert not any(name in answer.content.decode() for name in ("bob", "0xab", "0xc"))


def wallet(user, address: str, chain: str = "") -> WalletAddress:
    return save_clean(WalletAddress(user=user, address=address, chain=chain))


def on_list(name: str, **entry) -> None:
    row, _ = AccessList.objects.get_or_create(name=name.lower())
    save_clean(AccessListEntry(access_list=row, **entry))


def test_by_a_wallet_that_an_operator_vouches_for_in_any_case(site, user, account):
    allow(site, "address", "0xABc")
    wallet(make_user("bob"), "0xabD")
    refused(user)
    wallet(user, "0xaBC", "137")
    submit(user, tier="free")


@pytest.mark.parametrize(
    ("rule", "listed", "chain", "opens"),
    [
        ("partners", "partners", "", True),
        ("partners", "Partners", "5", True),
        ("1:0xC0", "1:0xc0", "", True),
        ("1:0xC0", "1:0xc0", "1", True),
        ("1:0xC0", "1:0xc0", "5", False),
        ("15:0xC0", "15:0xc0", "5", False),
        ("1:0xC0", "5:0xc0", "", False),
        ("others", "partners", "", False),
    ],
)
def test_by_a_wallet_on_an_access_list(site, user, account, rule, listed, chain, opens):
    allow(site, "access_list", rule)
    on_list(listed, address="0xAA")
    refused(user)
    wallet(user, "0xaa", chain)
    if opens:
        submit(user, tier="free")
    else:
        refused(user)


def test_by_name_on_an_access_list(site, user, account):
    allow(site, "access_list", "partners")
    on_list("partners", user=make_user("bob"))
    refused(user)
    on_list("partners", user=user)
    submit(user, tier="free")


def test_a_wallet_is_one_user_s_and_written_once(user):
    bob = make_user("bob")
    wallet(user, "0xAA", "1")
    for chain in ("1", ""):
        with pytest.raises(ValidationError, match="written for another user"):
            wallet(bob, "0xaa", chain)
    with pytest.raises(ValidationError, match="stands here already"):
        wallet(user, "0xaA", "1")
    with pytest.raises(ValidationError, match="A chain id is a number"):
        wallet(user, "0xBB", "eth")
    with pytest.raises(ValidationError, match="Enter the wallet's address"):
        wallet(user, " ")
    wallet(bob, "0xaa", "5")
    assert WalletAddress.objects.count() == 2
    with pytest.raises(IntegrityError), transaction.atomic():
        WalletAddress.objects.create(user=bob, address="0xaa", chain="1")


def test_what_is_no_list_and_no_entry_is_refused(user):
    for name in ("", "a b", "x:0x1", "1:", "1:2:3"):
        with pytest.raises(ValidationError, match="write chain:contract, or a name of your own"):
            save_clean(AccessList(name=name))
    row = save_clean(AccessList(name="1:0xAB"))
    assert row.name == "1:0xab"
    for entry in ({}, {"address": "0x1", "user": user}):
        with pytest.raises(ValidationError, match="one of them"):
            save_clean(AccessListEntry(access_list=row, **entry))
    save_clean(AccessListEntry(access_list=row, address="0xAA"))
    with pytest.raises(ValidationError, match="stands on the list already"):
        save_clean(AccessListEntry(access_list=row, address="0xaa"))


def test_an_operator_writes_them_in_the_admin(site, user, account, client):
    client.force_login(get_user_model().objects.create_superuser("olga"))
    add = "/admin/environments/walletaddress/add/"
    page = client.get(add).content.decode()
    assert "You vouch for that" in page
    assert client.post(add, {"user": user.pk, "chain": "", "address": "0xFF"}).status_code == 302
    rows = {"entries-TOTAL_FORMS": 1, "entries-INITIAL_FORMS": 0, "entries-0-address": "0xff"}
    added = client.post("/admin/environments/accesslist/add/", {"name": "Partners", **rows})
    assert added.status_code == 302
    allow(site, "access_list", "partners")
    submit(user, tier="free")
    refused_page = client.post(add, {"user": user.pk, "chain": "", "address": "0xfF"})
    assert "This wallet address stands here already" in refused_page.content.decode()
