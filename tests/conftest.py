"""Fixtures that all tests share."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.billing.models import Account
from tests.factories import Site, client_of, make_account, make_site, make_user


@pytest.fixture
def site(db: None) -> Site:
    """A host, its engine and an environment with prices and a free tier."""
    return make_site()


@pytest.fixture
def user(db: None) -> Any:
    return make_user("ada")


@pytest.fixture
def account(user: Any) -> Account:
    """The user's only account."""
    return make_account("ada's", user)


@pytest.fixture
def client_api(user: Any, account: Account) -> APIClient:
    """A client with a token of the user."""
    return client_of(user)


@pytest.fixture
def own_storage(settings: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Contents go into a folder of the tests, not into the site's data folder."""
    options = {"location": str(tmp_path_factory.getbasetemp() / "data")}
    settings.STORAGES = {**settings.STORAGES, "default": {**settings.STORAGES["default"], "OPTIONS": options}}


@pytest.fixture(autouse=True)
def no_static_files(settings: Any) -> None:
    """Each client of a test builds its own middleware, and WhiteNoise would look for every static file again."""
    settings.WHITENOISE_USE_FINDERS = False


@pytest.fixture(autouse=True)
def quick_passwords(settings: Any) -> None:
    """Hashing a password is slow on purpose; no test is about that."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
