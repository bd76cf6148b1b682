"""Lower case where it lengthens a text, and wallets that two operators write at the same moment."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from compute_site.core.db import constraint_name
from compute_site.core.models import save_clean
from environments.benchmark import keep_in_step
from environments.models import AccessList, AccessListEntry, AccessRule, WalletAddress

LONG = "İ" * 255  # two letters each in lower case
TOO_LONG = "Ensure this value has at most 255 characters (it has 510)."
ONCE = "wallet_address_once_where_chains_meet"


def test_no_row_takes_what_lower_case_makes_too_long(environment, django_user_model):
    user = django_user_model.objects.create_user("ada")
    listed = save_clean(AccessList(name="partners"))
    rule = {"environment": environment, "tier": "paid", "value": LONG}
    rows: dict[str, list[Any]] = {
        "value": [AccessRule(**rule, kind="address"), AccessRule(**rule, kind="access_list")],
        "address": [
            WalletAddress(user=user, address=LONG),
            AccessListEntry(access_list=listed, address=LONG),
        ],
        "name": [AccessList(name=LONG)],
    }
    for field, several in rows.items():
        for row in several:
            with pytest.raises(ValidationError) as error:
                save_clean(row)
            assert error.value.message_dict == {field: [TOO_LONG]}
    save_clean(AccessRule(**rule, kind="user"))  # a user's name keeps its case


def test_a_longer_one_is_told_once(environment):
    row = AccessRule(environment=environment, tier="paid", kind="address", value="A" * 256)
    with pytest.raises(ValidationError) as error:
        save_clean(row)
    assert error.value.message_dict == {"value": [TOO_LONG.replace("510", "256")]}


@pytest.mark.parametrize("name", ["a:b", "1:", "1:a:b", "two words"])
def test_a_rule_names_a_list_as_lists_are_named(environment, name):
    """Of another name there can be no list, nor a file that says it."""
    row = AccessRule(environment=environment, tier="paid", kind="access_list", value=name)
    with pytest.raises(ValidationError) as error:
        save_clean(row)
    told = f"Found “{name}”; write chain:contract, or a name of your own."
    assert error.value.message_dict == {"value": [told]}


def test_the_benchmark_says_so_too(engine, settings):
    settings.BENCHMARK_SECONDS, settings.BENCHMARK_CURRENCY = 60, "credit"
    settings.BENCHMARK_CORE_PRICE, settings.BENCHMARK_ADDRESSES = "0", [LONG]
    engine.enable_benchmark = True
    engine.save()
    (told,) = keep_in_step(engine)
    assert "is longer than 255 characters in lower case: no rule can name it." in told


class TestAWallet:
    @pytest.fixture
    def users(self, db) -> list[Any]:
        return [get_user_model().objects.create_user(name) for name in ("ada", "bob")]

    @pytest.mark.parametrize(
        ("first", "second", "meet"),
        [
            *[("", "", True), ("", "1", True), ("1", "", True), ("1", "1", True), ("1", "01", True)],
            *[("1", "137", False), ("10", "1", False)],
        ],
    )
    def test_the_database_keeps_it_of_one_user(self, users, first, second, meet):
        WalletAddress.objects.create(user=users[0], address="0xaa", chain=first)
        WalletAddress.objects.create(user=users[1], address="0xbb", chain=second)
        if not meet:
            WalletAddress.objects.create(user=users[1], address="0xaa", chain=second)
            return
        for user in users:
            with pytest.raises(IntegrityError) as error, transaction.atomic():
                WalletAddress.objects.create(user=user, address="0xaa", chain=second)
            assert constraint_name(error.value) == ONCE
        assert WalletAddress.objects.count() == 2

    def test_what_is_said_of_it(self, users):
        save_clean(WalletAddress(user=users[0], address="0xAA", chain="01"))
        for user, words in zip(users, ("stands here already", "is written for another user"), strict=True):
            for chain in ("", "1", "001"):
                with pytest.raises(ValidationError, match=words):
                    save_clean(WalletAddress(user=user, address="0xaa", chain=chain))
        row = WalletAddress.objects.get()
        assert row.chain == "1"
        row.chain = ""
        save_clean(row)

    def test_a_chain_is_a_number_in_the_database_too(self, users):
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            WalletAddress.objects.create(user=users[0], address="0xaa", chain="eth")
        assert constraint_name(error.value) == "wallet_address_chain_is_a_number"


@pytest.mark.django_db(transaction=True)
def test_of_two_who_write_it_at_once_one_does():
    """Both have looked and found nothing before either writes."""
    users = [get_user_model().objects.create_user(name) for name in ("ada", "bob")]
    looked = threading.Barrier(2, timeout=10)

    def write(number: int) -> str:
        row = WalletAddress(user=users[number], address="0xaa", chain=["", "137"][number])
        try:
            row.full_clean()
            looked.wait()
            row.save()
        except IntegrityError as error:
            return constraint_name(error)
        finally:
            connection.close()
        return "written"

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(write, range(2))) == [ONCE, "written"]
    assert WalletAddress.objects.count() == 1
