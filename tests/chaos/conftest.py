"""The long forms: `./run chaos`. The ordinary suite leaves them out."""

from pathlib import Path

import pytest

from tests.faults.fixtures import *  # noqa: F403 - fixtures are found by their names here
from tests.faults.fixtures import mark

HERE = Path(__file__).parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Only who names this folder gets it."""
    named = any(Path(argument.partition("::")[0]).resolve().is_relative_to(HERE) for argument in config.args)
    return None if named else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark(items, HERE)
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(4 * 3600))
