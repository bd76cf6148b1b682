"""A browser in which an administrator is logged in, and a count of statements."""

import pytest

from tests.admin.rows import Statements
from tests.factories import make_user


@pytest.fixture(autouse=True)
def stored_apart(own_storage: None) -> None:
    """Every test of this folder stores contents apart."""


@pytest.fixture
def operator(client, db):
    """An administrator."""
    root = make_user("root")
    root.is_staff = root.is_superuser = True
    root.save()
    client.force_login(root)
    return client


@pytest.fixture
def statements(monkeypatch) -> Statements:
    return Statements(monkeypatch)
