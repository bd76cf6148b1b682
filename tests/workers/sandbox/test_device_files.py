"""Device files of the host inside a container: exactly those of the reserved device, for the job's user by its group."""

import json
import os
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from compute_site.core.errors import InfrastructureFailed
from environments.device_init import needs_of
from environments.models import Device, DeviceInit
from tests.factories import Site
from tests.workers.sandbox.conftest import Maker, Run
from workers.sandbox import readback
from workers.sandbox.docker import EngineClient

pytestmark = pytest.mark.engine
GROUP = 44_321
LOOK = """
import json, os
def use(path, how):
    try:
        return os.close(os.open(path, how)) or "opened"
    except OSError as error:
        return type(error).__name__
found = sorted(name for name in os.listdir("/dev") if name.startswith("cs-"))
print(json.dumps({name: [use("/dev/" + name, how) for how in (os.O_RDONLY, os.O_WRONLY)] for name in found}
    | {"groups": os.getgroups(), "HSA_X": os.environ.get("HSA_X")}))
"""


@pytest.fixture(scope="module")
def files() -> Iterator[list[str]]:
    """Two files for their group alone, of tun and fuse; every engine lets containers use the former, if they had it."""
    paths = [f"/dev/cs-{os.getpid()}-{number}" for number in range(2)]
    try:
        for path, minor in zip(paths, (200, 229), strict=True):
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(10, minor))
            os.chown(path, 0, GROUP)
            os.chmod(path, 0o660)
    except PermissionError as error:
        pytest.skip(f"only root makes device files: {error}")
    yield paths
    for path in paths:
        os.unlink(path)


@pytest.fixture
def devices(site: Site, files: list[str]) -> list[str]:
    """Two devices, each with a file of its own; the second is for reading only, and its group is not named."""
    for number, path in enumerate(files):
        made = Device.objects.create(host=site.host, uuid=f"amd-{number}", platform="amd")
        DeviceInit.objects.create(device=made, name=path, value="r" if number else "rw")
    first = Device.objects.get(uuid="amd-0")
    DeviceInit.objects.create(device=first, kind="group", name=str(GROUP))
    DeviceInit.objects.create(device=first, kind="variable", name="HSA_X", value="10.3.0")
    return [os.path.basename(path) for path in files]


def run_of(make: Maker, image: str, *uuids: str) -> Run:
    needs = needs_of(uuids)
    given: dict[str, Any] = {
        "device_files": needs.files,
        "groups": needs.groups,
        "device_env": needs.variables,
    }
    return make(image, argv=("python3", "-c", LOOK), env={"HSA_X": "client's"}, **given)


def test_each_job_has_its_own_alone(
    make: Maker, sandbox_image: str, devices: list[str], engine_client: EngineClient
) -> None:
    first, second, none = [run_of(make, sandbox_image, *uuids) for uuids in (["amd-0"], ["amd-1"], [])]
    for run in (first, second, none):
        run.whole()
    group = {"groups": [GROUP, first.spec.uid], "HSA_X": "10.3.0"}
    seen = json.loads(first.log)
    assert seen == {devices[0]: ["opened"] * 2, **group}
    plain = {"groups": [second.spec.uid], "HSA_X": "client's"}
    assert json.loads(second.log) == {devices[1]: ["PermissionError"] * 2, **plain}
    assert json.loads(none.log) == plain


def test_permissions_are_those_of_the_init(make: Maker, sandbox_image: str, devices: list[str]) -> None:
    """The second file may be read by the group of the first, and by no means written."""
    seen = json.loads(run_of(make, sandbox_image, "amd-0", "amd-1").whole().log)
    assert seen[devices[0]] == ["opened", "opened"]
    assert seen[devices[1]] == ["opened", "PermissionError"]


def test_the_receipt_tells_nothing_of_it(
    make: Maker, sandbox_image: str, devices: list[str], engine_client: EngineClient
) -> None:
    run = run_of(make, sandbox_image, "amd-0")
    run.create()
    inspected = engine_client.inspect_raw(run.id)
    assert inspected is not None
    receipt = readback.effective(inspected, hidden={"HSA_X"})
    assert not [word for word in (devices[0], str(GROUP)) if word in json.dumps(receipt)]
    assert "HSA_X" not in receipt["config"]["Env"]
    inspected["HostConfig"]["Devices"][0]["CgroupPermissions"] = "rwm"
    assert readback.differences(run.config, inspected) == ["HostConfig.Devices: not as asked"]


def test_a_file_that_is_not_there_is_ours_and_not_told(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, device_files=(("/dev/cs-none", "rw"),))
    with pytest.raises(InfrastructureFailed) as error:
        run.whole()
    assert error.value.reason == "cannot_start"
    assert "cs-none" not in str(error.value)
