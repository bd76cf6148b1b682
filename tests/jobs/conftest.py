"""Nothing here writes into the site's data folder."""

import pytest


@pytest.fixture(autouse=True)
def stored_apart(own_storage: None) -> None:
    """Every test of this folder stores contents apart."""
