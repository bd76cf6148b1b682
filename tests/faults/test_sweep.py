"""The sweep removes what is provably ours and no longer wanted, and touches nothing else."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from jobs.models import Attempt
from tests.faults.site import FaultSite, Place
from workers import sweep
from workers.cleaning import hold_name
from workers.engines import connect
from workers.fsck import disagreements
from workers.sandbox.spec import LABEL_PREFIX


@pytest.fixture
def make(site: FaultSite) -> Iterator[Any]:
    """Make a container that is never started; what the sweep left of them goes in the end."""
    made: list[tuple[Place, str]] = []

    def maker(place: Place, name: str, **labels: str) -> str:
        body = {"Image": site.image, "Labels": {LABEL_PREFIX + key: value for key, value in labels.items()}}
        made.append((place, place.client.create(name, body)))
        return made[-1][1]

    yield maker
    for place, container in made:
        place.client.remove(container)


@pytest.fixture
def cleaned(site: FaultSite) -> tuple[Place, Attempt]:
    """An attempt that ended and was cleaned."""
    place = site.place()
    worker = site.worker(place)
    job = site.shell(place, "true")
    site.wait_clean(job)
    worker.kill()
    return place, site.attempt(job)


def test_what_is_not_provably_ours_stays(
    cleaned: tuple[Place, Attempt], make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, attempt = cleaned
    monkeypatch.setattr(sweep, "GRACE", timedelta(0))
    forged = {"site": settings.SITE_ID, "attempt": str(attempt.public_id), "nonce": str(uuid.uuid4())}
    unknown = {"site": settings.SITE_ID, "attempt": str(uuid.uuid4()), "nonce": str(attempt.nonce)}
    containers = [
        make(place, f"stranger-{uuid.uuid4().hex}"),
        make(
            place, f"cs-other-{uuid.uuid4().hex}", **{**forged, "site": "other", "nonce": str(attempt.nonce)}
        ),
        make(place, f"cs-{settings.SITE_ID}-{uuid.uuid4().hex}", **unknown),
        make(place, f"forged-{uuid.uuid4().hex}", **forged),
    ]
    assert sweep.sweep(place.engine) == []
    assert [place.client.inspect(container) is not None for container in containers] == [True] * 4
    told = "\n".join(disagreements())
    assert told.count("bears our site's label and belongs to no attempt") == 2, told
    for container in containers:
        place.client.remove(container)


def test_a_container_that_comes_late_is_removed_after_the_grace(
    cleaned: tuple[Place, Attempt], make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, attempt = cleaned
    ours = {"site": settings.SITE_ID, "attempt": str(attempt.public_id), "nonce": str(attempt.nonce)}
    late = make(place, attempt.container_name, **ours)
    assert sweep.sweep(place.engine) == []  # it may be on its way out
    assert any("although its attempt was cleaned" in line for line in disagreements())
    monkeypatch.setattr(sweep, "GRACE", timedelta(0))
    assert sweep.sweep(place.engine) == [f"container {attempt.container_name}"]
    assert place.client.inspect(late) is None
    assert sweep.sweep(place.engine) == []


def test_a_workspace_that_comes_back_is_removed_after_the_grace(
    cleaned: tuple[Place, Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, attempt = cleaned
    workspace = connect(place.engine).workspace(attempt.container_name)
    workspace.prepare(uid=attempt.uid, disk_mib=64, inputs={}, job_json=b"{}")
    assert sweep.sweep(place.engine) == []
    monkeypatch.setattr(sweep, "GRACE", timedelta(0))
    assert sweep.sweep(place.engine) == [f"workspace {attempt.container_name}"]
    assert workspace.absent()


def test_a_tombstone_keeps_its_name_from_a_late_create_for_a_day(
    cleaned: tuple[Place, Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, attempt = cleaned
    hold_name(connect(place.engine), attempt)
    hold_name(connect(place.engine), attempt)  # may be repeated
    monkeypatch.setattr(sweep, "GRACE", timedelta(0))
    assert sweep.sweep(place.engine) == []
    assert list(disagreements()) == []
    monkeypatch.setattr(sweep, "TOMBSTONE_LIFE", timedelta(0))
    assert sweep.sweep(place.engine) == [f"container {attempt.container_name}"]
