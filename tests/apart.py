"""A pytest plugin: processes that test side by side share PostgreSQL, broker and engine, and nothing in them.

Loaded with `-p tests.apart`, before Django's settings are read. pytest-django already gives each process a database of
its own; this gives it a database of the broker, folders, and a site name, by which it knows its containers.
"""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest


def own_environment(worker: str, environment: dict[str, str]) -> dict[str, str]:
    """What differs for the process that pytest-xdist calls `worker` (`gw0`, `gw1`, …); nothing for no such process."""
    if not worker:
        return {}
    number = int(worker.removeprefix("gw"))
    own = {"TESTS_BESIDE": str(number)}
    if "REDIS_URL" in environment:
        own["REDIS_URL"] = urlsplit(environment["REDIS_URL"])._replace(path=f"/{number}").geturl()
    if "SITE_ID" in environment:
        own["SITE_ID"] = f"{environment['SITE_ID'][:9]}w{number}"
    for name in ("STATE_DIR", "DATA_DIR"):
        if name in environment:
            folder = Path(environment[name]) / worker
            folder.mkdir(parents=True, exist_ok=True)
            own[name] = str(folder)
    return own


os.environ.update(own_environment(os.environ.get("PYTEST_XDIST_WORKER", ""), dict(os.environ)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest of all, one site from a compose file, first: nobody waits for it alone in the end."""
    items.sort(key=lambda item: item.path.parent.name != "node")
