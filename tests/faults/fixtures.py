"""The whole site under fault: real engine, real workers, and at the end of every test nothing is left over."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings as site_settings
from django.core.management import call_command
from django.db import connection, connections

from compute_site.embedded import image
from compute_site.embedded.dockerd import PrivateEngine, provide_programs
from compute_site.embedded.sandbox import TOOLS_IMAGE
from tests.factories import client_of, make_account, make_user
from tests.faults.processes import Zygote
from tests.faults.site import FaultSite
from workers.engines import connect
from workers.fsck import disagreements
from workers.sandbox import cgroup
from workers.sandbox.docker import EngineClient
from workers.sandbox.networks import remove_network

# Sites that are tested side by side give their containers users of their own.
UIDS = (2_000_200_000 + 1000 * int(os.environ.get("TESTS_BESIDE", "0")), 1000)
SITE_ID = "f" + uuid.uuid4().hex[:6]
# Short, so that nobody waits: grace, retries, leases. What depends on time is tested in its proportions.
SHORT = {
    "STOP_GRACE_SECONDS": 1,
    "RETRY_BACKOFF_SECONDS": 0,
    "WORKER_TTL_SECONDS": 6,
    "STEP_LEASE_SECONDS": 6,
}


def needed(name: str) -> str:
    """A variable that `./run test` sets; loud when it is absent, and a failure where nothing may be left out."""
    value = os.environ.get(name, "")
    if not value and os.environ.get("CI"):
        pytest.fail(f"{name} is not set: faults cannot be tested")
    if not value:
        pytest.skip(f"{name} IS NOT SET: FAULTS ARE NOT TESTED (./run test sets it)")
    return value


def mark(items: list[pytest.Item], folder: Path) -> None:
    """The tests of `folder` need an engine and a database whose rows the workers see."""
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """In place of pytest-django's: rows stay from test to test of a module, whose site clears them in the end."""


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """State, data and logs of the site under test; its name is unique on the machine and names the engines."""
    with tempfile.TemporaryDirectory(prefix="cs-") as name:
        path = Path(name).rename(Path(name).with_name(SITE_ID))
        yield path
        path.rename(name)


@pytest.fixture(scope="session")
def own_settings(folder: Path) -> Iterator[dict[str, Any]]:
    """The settings of the site under test, in this process and for its workers."""
    values: dict[str, Any] = {
        "SITE_ID": SITE_ID,
        "STATE_DIR": str(folder / "state"),
        "DATA_DIR": str(folder / "data"),
        "MEDIA_ROOT": str(folder / "data"),
        "LAUNCHER": needed("LAUNCHER"),
        "SANDBOX_IMAGE": needed("SANDBOX_IMAGE"),
        "UID_RANGE": UIDS,
        "LOG_CAP_BYTES": 1 << 20,
        **SHORT,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(site_settings, name, value)
        yield values


@pytest.fixture(scope="session")
def zygote(own_settings: dict[str, Any], folder: Path, django_db_setup: None) -> Iterator[Zygote]:
    """The parent of all workers, on the test database."""
    url = urlsplit(needed("DATABASE_URL"))._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    names = {
        name: str(own_settings[name])
        for name in (*SHORT, "SITE_ID", "STATE_DIR", "DATA_DIR", "LOG_CAP_BYTES")
    }
    first, count = own_settings["UID_RANGE"]
    more = {"DATABASE_URL": url, "UID_FIRST": str(first), "UID_COUNT": str(count), "LOG_LEVEL": "INFO"}
    parent = Zygote({**os.environ, **names, **more}, folder / "zygote.log")
    yield parent
    parent.end()


@pytest.fixture(scope="module")
def fault_site(
    zygote: Zygote, folder: Path, django_db_blocker: Any, session_probes: dict[str, Any]
) -> Iterator[FaultSite]:
    """One site for a module; its rows are committed, since the workers must see them, and gone afterwards."""
    with django_db_blocker.unblock():
        try:
            user = make_user("ada")
            make_account("ada's", user)
            site = FaultSite(client_of(user), needed("DOCKER_HOST"), needed("TOOLS_IMAGE"), zygote, folder)
            site.probed = session_probes
            yield site
        finally:
            call_command("flush", interactive=False, verbosity=0)
            connections.close_all()


@pytest.fixture(scope="session", autouse=True)
def no_network_stays(own_settings: dict[str, Any]) -> Iterator[None]:
    """A site keeps its network on an engine; a site of tests does not."""
    yield
    client = EngineClient(needed("DOCKER_HOST"))
    for facts in client.list_site(SITE_ID):  # of a test that failed: a gate of it would hold the network
        client.remove(facts.id)
    assert remove_network(client, SITE_ID)
    client.close()


@pytest.fixture(scope="session")
def session_probes() -> dict[str, Any]:
    """What was found out about each endpoint, once."""
    return {}


@pytest.fixture(scope="module")
def own_engine(fault_site: FaultSite) -> Iterator[PrivateEngine]:
    """An engine that a test may stop, with the site's images."""
    if os.getuid() != 0:
        pytest.skip("needs root: a private engine cannot be started without it")
    provide_programs()
    place = Path(tempfile.mkdtemp(prefix="cs-"))
    engine = PrivateEngine(place / "docker", SITE_ID, sockets=place)
    engine.start()
    try:
        image.build(engine.docker_host, site_settings.SANDBOX_IMAGE)
        image.build(engine.docker_host, TOOLS_IMAGE, tools=True)
        yield engine
    finally:
        engine.stop()
        shutil.rmtree(place)


@pytest.fixture(autouse=True)
def stored_in_a_folder_of_its_own(settings: Any, folder: Path) -> None:
    """This process reads what the workers store."""
    default = {**settings.STORAGES["default"], "OPTIONS": {"location": str(folder / "data")}}
    settings.STORAGES = {**settings.STORAGES, "default": default}


@pytest.fixture
def site(fault_site: FaultSite) -> Iterator[FaultSite]:
    """The site for one test, which has to leave nothing behind: neither in rows, nor on the engine or the machine."""
    yield fault_site
    try:
        for place in fault_site.places:
            print(fault_site.worker_log(place)[-8000:])  # pytest shows it when the test failed
        for place in fault_site.places:
            connect(place.engine)
        assert list(disagreements()) == []
        assert_nothing_left(fault_site)
    finally:
        fault_site.end_test()


def assert_nothing_left(site: FaultSite) -> None:
    """No container but tombstones (which are removed here), no workspace, no cgroup."""
    for endpoint in {place.engine.endpoint for place in site.places}:
        client = EngineClient(endpoint)
        listed = client.list_site(SITE_ID)
        assert [facts.name for facts in listed if not facts.label("tombstone")] == []
        assert all(client.remove(facts.id) for facts in listed)
        client.close()
    for place in site.places:
        assert connect(place.engine).traces() == []
    assert cgroup.existing(SITE_ID) == set()


__all__ = [
    "_django_db_marker",
    "fault_site",
    "folder",
    "no_network_stays",
    "own_engine",
    "own_settings",
    "session_probes",
    "site",
    "stored_in_a_folder_of_its_own",
    "zygote",
]
