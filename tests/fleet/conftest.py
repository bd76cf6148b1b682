"""A site with the fleet on, and remote workers that speak to it through signed requests."""

import pytest

from tests.factories import make_account, make_site, make_user
from tests.fleet.remote import Fleet, make_fleet


@pytest.fixture(autouse=True)
def stored_apart(own_storage: None) -> None:
    """Every test of this folder stores contents apart."""


@pytest.fixture
def fleet(settings, site, user, account) -> Fleet:
    """The environment `fleet/gpu`, audited on `local/main`; no worker yet."""
    settings.FLEET_ENABLED = True
    return make_fleet(site, user, account)


@pytest.fixture
def transactional_fleet(transactional_db, settings) -> Fleet:
    """The same for threads, whose transactions are real."""
    settings.FLEET_ENABLED = True
    user = make_user("ada")
    return make_fleet(make_site(), user, make_account("ada's", user))
