"""What an attempt's container is asked to have, by the devices that the attempt reserved."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from environments.models import Device, DeviceInit
from jobs.spec import Spec
from tests.factories import submit, take
from tests.workers.sandbox.test_config import ENGINE, IMAGE
from workers import job_file, steps
from workers.sandbox import readback
from workers.steps import Run


@pytest.fixture
def run(site, user, account) -> Run:
    """Of an attempt that holds one device of AMD, of two, and one of NVIDIA."""
    for number in range(2):
        made = Device.objects.create(host=site.host, uuid=f"amd-{number}", platform="amd")
        DeviceInit.objects.create(device=made, name=f"/dev/dri/renderD{number}", value="rw")
    DeviceInit.objects.create(device=made, kind="group", name="44")
    DeviceInit.objects.create(device=made, kind="variable", name="HSA_X", value="1")
    Device.objects.create(host=site.host, uuid="GPU-0")
    attempt = take(submit(user, env={"HSA_X": "client's"}))
    attempt.device_uuids = ["GPU-0", "amd-1"]
    link: Any = SimpleNamespace(
        client=SimpleNamespace(image=lambda reference: IMAGE),
        facts=ENGINE,
        engine=SimpleNamespace(facts={}),
        workspace=lambda *_: SimpleNamespace(mounts=list),
    )
    assert attempt.lease is not None
    return Run(attempt, attempt.job, attempt.lease, link)


def test_exactly_what_was_reserved(run):
    body = steps._body(run, IMAGE)
    host = body["HostConfig"]
    assert [request["DeviceIDs"] for request in host["DeviceRequests"]] == [["GPU-0"]]
    path = "/dev/dri/renderD1"
    assert host["Devices"] == [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rw"}]
    assert host["GroupAdd"] == ["44"]
    assert [line for line in body["Env"] if line.startswith("HSA")] == ["HSA_X=1"]
    assert steps._rebuilt_body(run) == body


def test_the_job_is_told_nothing_of_it(run):
    told = job_file.document(run.job, 1, Spec.from_json(run.job.spec)).decode()
    assert not [word for word in ("/dev/", "HSA", "amd-1") if word in told]


def test_what_is_kept_of_the_container_tells_nothing_either(run, monkeypatch):
    kept: dict[str, Any] = {}
    monkeypatch.setattr(readback, "differences", lambda *_: [])
    monkeypatch.setattr(steps, "move_attempt", lambda *_, **values: kept.update(values) or True)
    body = steps._body(run, IMAGE)
    raw = {"Id": "1", "Name": "/n", "Image": "i", "Created": "c", "Mounts": []}
    steps._allow(run, cast(Any, raw | {"Config": body, "HostConfig": body["HostConfig"]}))
    assert kept["effective"]["host"]["DeviceRequests"]
    assert not {"Devices", "GroupAdd"} & kept["effective"]["host"].keys()
    assert "HSA_X" not in kept["effective"]["config"]["Env"]
