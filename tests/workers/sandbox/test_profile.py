"""The profile as the engine made it and as a program finds it inside: every field of the policy."""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.workers.sandbox.conftest import PROGRAMS, Maker, Run
from workers.sandbox import readback
from workers.sandbox.docker import EngineClient

pytestmark = pytest.mark.engine

LOOK_AND_STAY = (PROGRAMS / "look.py").read_text() + "\nimport time\ntime.sleep(60)\n"


@pytest.fixture
def live(make: Maker, sandbox_image: str, engine_client: EngineClient) -> Run:
    run = make(
        sandbox_image, argv=("python3", "-c", LOOK_AND_STAY), env={"GREETING": "hällo = 1"}, memory_mib=256
    )
    run.create()
    run.start()
    while b"\n" not in run.workspace.read_log("stdout", 0, 2**20):
        facts = engine_client.inspect(run.id)
        assert facts is not None
        assert facts.status == "running", run.workspace.read_log("stderr", 0, 2**20)
    return run


def test_what_a_live_container_is_and_sees(live: Run, engine_client: EngineClient) -> None:
    inspected = engine_client.inspect_raw(live.id)
    assert inspected is not None
    assert readback.differences(live.config, inspected) == []
    assert inspected["State"]["Running"]
    check_inside(live, json.loads(live.workspace.read_log("stdout", 0, 2**20)))
    receipt = readback.effective(inspected)
    assert receipt["image"] == live.spec.image_id
    assert receipt["host"]["CapDrop"] == ["ALL"]
    assert "hällo" not in json.dumps(receipt, ensure_ascii=False)
    assert "GREETING" in receipt["config"]["Env"]


def check_inside(run: Run, seen: Mapping[str, Any]) -> None:
    uid, status = run.spec.uid, seen["status"]
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert seen["uid"] == [uid] * 3
    assert seen["gid"] == [uid] * 3
    assert set(seen["groups"]) <= {uid}
    assert seen["pid1"] == "/.site/launcher"
    assert len(seen["processes"]) == 2
    assert seen["hostname"] == "job"
    assert seen["interfaces"] == ["lo"]
    assert "127.0.0.1" in seen["localhost"]
    assert seen["elsewhere"] == []
    assert seen["hosts"].startswith("127.0.0.1 localhost")
    assert seen["cores"] == list(run.spec.cores)
    assert seen["oom_score_adj"] == 500
    assert seen["limits"] == {
        "CORE": [0, 0],
        "NOFILE": [16384] * 2,
        "MEMLOCK": [65536] * 2,
        "FSIZE": [64 * 2**20] * 2,
    }
    check_variables(run, seen["env"])
    check_mounts(uid, seen)
    assert not {"mem", "kmsg", "fuse", "kvm", "loop-control", "mapper"} & set(seen["devices"])
    assert not [name for name in seen["devices"] if name.startswith(("vd", "sd", "nvme", "nvidia", "loop"))]
    # With its own cgroup namespace a container does not even learn where it is.
    assert {line.rpartition(":")[2] for line in seen["cgroup"].split()} == {"/"}


def check_variables(run: Run, env: Mapping[str, str]) -> None:
    assert env["GREETING"] == "hällo = 1"
    assert env["JOB_ID"] == run.spec.job
    assert env["JOB_OUTPUTS"] == "/data/outputs"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert env["HOME"] == "/tmp"


def check_mounts(uid: int, seen: Mapping[str, Any]) -> None:
    mounts, modes = seen["mounts"], seen["modes"]
    for path, size in {"/tmp": "65536k", "/run": "16384k", "/dev/shm": "65536k"}.items():
        options = set(mounts[path]["options"])
        assert mounts[path]["type"] == "tmpfs"
        assert {"rw", "nosuid", "nodev", "noexec", f"size={size}", f"uid={uid}", f"gid={uid}"} <= options
        assert any(option.startswith("nr_inodes=") for option in options)
        # The runtime takes the mode of the image's folder where there is one; the owner is the job's in any case.
        assert modes[path] in (["0o700", uid], ["0o755", uid], ["0o1777", uid])
    for path in ("/", "/.site/launcher", "/etc/hosts", "/proc/sys", "/proc/bus", "/proc/irq", "/sys"):
        assert "ro" in mounts[path]["options"], path
    assert "rw" in mounts["/data"]["options"]
    assert modes["/data"] == ["0o755", 0]
    assert modes["/data/outputs"] == ["0o700", uid]
    assert modes["/.site/control"] == ["0o711", 0]
    writable = {path for path, mount in mounts.items() if "rw" in mount["options"]}
    kernel = {"/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys/fs/cgroup"}
    masked = {path for path in writable if path.startswith("/proc/") and mounts[path]["type"] == "tmpfs"}
    assert writable - kernel - masked == {"/tmp", "/run", "/dev/shm", "/data", "/.site/control"}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every value that is no container, and to every empty one."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = list(pairs)
    if not inner:
        yield path
    for key, item in inner:
        yield from leaves(item, (*path, key))


def other(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return "other" if isinstance(value, str) else ["other"]


def changed(tree: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(tree)
    place = copied
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copied


def test_readback_refuses_every_field_that_differs(
    make: Maker, sandbox_image: str, engine_client: EngineClient
) -> None:
    run = make(sandbox_image, env={"A": "1"})
    run.create()
    assert run.differences == []
    inspected = engine_client.inspect_raw(run.id)
    assert inspected is not None
    missed, tried = [], 0
    for part in ("Config", "HostConfig"):
        for path in leaves(inspected[part], (part,)):
            if is_indifferent(path, run.config, inspected):
                continue
            value = inspected
            for key in path:
                value = value[key]
            tried += 1
            if not readback.differences(run.config, changed(inspected, path, other(value))):
                missed.append(".".join(map(str, path)))
    assert missed == []
    assert tried > 100


def is_indifferent(path: tuple[Any, ...], asked: Mapping[str, Any], inspected: Mapping[str, Any]) -> bool:
    """What may be anything: an image's harmless fields, its variables and labels, the size of a shm that is not there."""
    part, key = path[0], path[1]
    if part == "HostConfig":
        return key == "ShmSize" or (
            key in ("MaskedPaths", "ReadonlyPaths") and not _required(path, inspected)
        )
    if key == "Env":
        return len(path) > 2 and path[2] >= len(asked["Env"])
    return key in readback.FROM_IMAGE or (key == "Labels" and path[-1] not in asked["Labels"])


def _required(path: tuple[Any, ...], inspected: Mapping[str, Any]) -> bool:
    return inspected[path[0]][path[1]][path[2]] in readback.MASKED | readback.READ_ONLY


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("Image",), "sha256:other"),
        (("ExecIDs",), ["x"]),
        (("HostConfig", "Memory"), None),
        (("HostConfig", "PidsLimit"), None),
        (("HostConfig", "SecurityOpt"), ["no-new-privileges", "seccomp=unconfined"]),
        (("HostConfig", "SecurityOpt"), None),
        (("HostConfig", "Devices"), [{"PathOnHost": "/dev/mem"}]),
        (("HostConfig", "Binds"), ["/:/host"]),
        (("HostConfig", "MaskedPaths"), None),
        (("HostConfig", "SomethingNew"), {"enabled": True}),
        (("Config", "Env"), []),
        (("Mounts",), []),
    ],
)
def test_readback_refuses_what_is_missing_or_new(
    make: Maker, sandbox_image: str, engine_client: EngineClient, path: tuple[str, ...], value: Any
) -> None:
    run = make(sandbox_image)
    run.create()
    inspected = engine_client.inspect_raw(run.id)
    assert inspected is not None
    assert readback.differences(run.config, inspected) == []
    assert readback.differences(run.config, changed(inspected, path, value)) != []


def test_readback_refuses_a_mount_that_is_not_as_asked(
    make: Maker, sandbox_image: str, engine_client: EngineClient
) -> None:
    run = make(sandbox_image)
    run.create()
    inspected = engine_client.inspect_raw(run.id)
    assert inspected is not None
    volume = {"Type": "volume", "Name": "x", "Source": "/x", "Destination": "/v", "RW": True}
    assert readback.differences(run.config, changed(inspected, ("Mounts",), [*inspected["Mounts"], volume]))
    for index, mount in enumerate(inspected["Mounts"]):
        for key in ("Source", "Destination", "RW", "Propagation"):
            value = {"RW": not mount["RW"], "Propagation": "rshared"}.get(key, "/elsewhere")
            assert readback.differences(run.config, changed(inspected, ("Mounts", index, key), value)), key
