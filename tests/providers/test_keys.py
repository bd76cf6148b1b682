"""Providers' keys: sealed for one row, rotated, never shown."""

import base64

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.management import call_command

from providers import keys
from providers.models import ProviderAccount
from tests.providers.conftest import make_account

OLD, NEW = (
    f"{name}:{base64.b64encode(bytes([number]) * 32).decode()}" for name, number in (("a", 1), ("b", 2))
)


def test_a_sealed_key_opens_in_its_own_place_only(settings):
    settings.PROVIDER_KEY_RING = [OLD]
    sealed = keys.seal("the-secret", "table:1:field")
    assert "the-secret" not in sealed
    assert keys.unseal(sealed, "table:1:field") == "the-secret"
    assert keys.seal("the-secret", "table:1:field") != sealed
    for place, text in (
        ("table:2:field", sealed),
        ("table:1:field", sealed[:-8] + "AAAAAAA="),
        ("table:1:field", ""),
    ):
        with pytest.raises(keys.KeyUnreadable):
            keys.unseal(text, place)


@pytest.mark.parametrize(
    "wrong", ["", "a", "a:xx", "a:" + "A" * 10, OLD.replace("a:", ":"), OLD.replace("a:", "a-:")]
)
def test_what_is_no_ring(settings, wrong):
    settings.PROVIDER_KEY_RING = [wrong]
    with pytest.raises(ImproperlyConfigured):
        keys.ring()


def test_keys_are_sealed_anew_when_the_ring_turns(settings, lium, db):
    settings.PROVIDER_KEY_RING = [OLD]
    account = make_account(lium, "lium")
    first = account.sealed_key
    assert lium.key not in first
    assert lium.key not in repr(account) + str(vars(account))
    settings.PROVIDER_KEY_RING = [NEW, OLD]
    call_command("rotate_provider_keys", verbosity=0)
    account.refresh_from_db()
    assert account.sealed_key.startswith("1:b:")
    settings.PROVIDER_KEY_RING = [NEW]
    assert account.open_key() == lium.key
    settings.PROVIDER_KEY_RING = [OLD]
    with pytest.raises(keys.KeyUnreadable):
        account.open_key()


def test_a_key_copied_into_another_row_does_not_open(lium, db):
    first, second = make_account(lium, "lium"), make_account(lium, "targon")
    ProviderAccount.objects.filter(pk=second.pk).update(sealed_key=first.sealed_key)
    second.refresh_from_db()
    with pytest.raises(keys.KeyUnreadable):
        second.open_key()


@pytest.mark.parametrize("key", ["", "short", "with a space in it", "line\nbreak-in-it", "ünïcode-key"])
def test_what_is_no_key(lium, db, key):
    account = make_account(lium, "lium")
    before = account.sealed_key
    with pytest.raises(ValidationError):
        account.set_key(key)
    account.refresh_from_db()
    assert account.sealed_key == before


@pytest.mark.parametrize(
    "address",
    ["http://example.org", "https://u:p@example.org", "ftp://example.org", "https://", "x", "https://a/?k=1"],
)
def test_where_a_key_is_not_sent(lium, db, address):
    account = make_account(lium, "lium")
    account.base_url = address
    with pytest.raises(ValidationError):
        account.full_clean()
