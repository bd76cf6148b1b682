"""The short forms: each fault once, as it may come on any day."""

from pathlib import Path

import pytest

from tests.faults.fixtures import *  # noqa: F403 - fixtures are found by their names here
from tests.faults.fixtures import mark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark(items, Path(__file__).parent)
