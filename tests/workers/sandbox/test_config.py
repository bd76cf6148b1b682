"""The policy itself, and what a client or an image may not bring into it."""

from dataclasses import replace
from typing import Any

import pytest

from compute_site.core.errors import ExecutionFailed
from jobs import spec_fields
from tests.workers.sandbox.conftest import made_spec
from workers.sandbox import config, variables
from workers.sandbox.facts import EngineFacts, ImageFacts
from workers.sandbox.spec import container_name, final_argv

ENGINE = EngineFacts(
    engine_id="e",
    version="20.10",
    api_version="1.41",
    cpu_count=8,
    memory_mib=1024,
    disk_mib=None,
    architecture="amd64",
    os="linux",
    data_root="/d",
    cgroup_driver="cgroupfs",
    cgroup_version=1,
    storage_driver="overlay2",
    seccomp=True,
    live_restore=True,
    runtimes=("runc",),
    security=(),
)
IMAGE = ImageFacts(
    id="sha256:1",
    architecture="amd64",
    os="linux",
    entrypoint=(),
    command=(),
    env=("PATH=/bin",),
    volumes=(),
    user="",
    size=1,
    working_dir="",
)
MOUNT = {"Type": "bind", "Source": "/a", "Target": "/data", "ReadOnly": False}


def built(image: ImageFacts = IMAGE, engine: EngineFacts = ENGINE, **changes: Any) -> dict[str, Any]:
    spec = made_spec(image_id=image.id, **changes)
    return config.build(spec, image, [MOUNT], engine, cgroup_parent="/compute-site-x/y")


def test_amounts_become_the_kernels() -> None:
    host = built(cores=(3, 1), memory_mib=300, disk_mib=50)["HostConfig"]
    assert (host["NanoCpus"], host["CpusetCpus"]) == (2 * 10**9, "1,3")
    assert host["Memory"] == host["MemorySwap"] == 300 * 2**20
    assert host["MemorySwappiness"] == 0
    assert host["PidsLimit"] == 256
    assert {"Name": "fsize", "Soft": 50 * 2**20, "Hard": 50 * 2**20} in host["Ulimits"]
    assert "nproc" not in {limit["Name"] for limit in host["Ulimits"]}
    assert built(cores=tuple(range(16)))["HostConfig"]["PidsLimit"] == 512


def test_a_log_larger_than_the_disk_can_still_be_written() -> None:
    limits = {
        limit["Name"]: limit["Hard"] for limit in built(disk_mib=1, log_cap=2**24)["HostConfig"]["Ulimits"]
    }
    assert limits["fsize"] == 2**24 + 2**20


def test_version_2_has_no_swappiness() -> None:
    assert "MemorySwappiness" not in built(engine=replace(ENGINE, cgroup_version=2))["HostConfig"]


def test_the_launcher_gets_its_limits_and_then_the_job() -> None:
    body = built(argv=("prog", "--", "a b", ""), max_duration=60, log_cap=1000, stop_grace=7)
    assert body["Entrypoint"] == ["/.site/launcher"]
    assert body["Cmd"] == ["/.site/control", "65", "1000", "7", "--", "prog", "--", "a b", ""]
    assert body["StopTimeout"] == 7


def test_other_runtimes_get_dockers_empty_network() -> None:
    body = built(runtime="runsc")
    assert "NetworkDisabled" not in body  # an engine leaves out what is false
    assert (body["HostConfig"]["NetworkMode"], body["HostConfig"]["Dns"]) == ("none", ["127.0.0.1"])
    plain = built()
    assert plain["NetworkDisabled"] is True
    assert plain["HostConfig"]["NetworkMode"] == "none"


def test_behind_a_gate_only_the_network_is_another() -> None:
    gate = "ab" * 32
    with_network, without = built(gate=gate), built()
    assert with_network["HostConfig"]["NetworkMode"] == f"container:{gate}"
    assert with_network["Cmd"] == ["--gated", *without["Cmd"]]
    assert (with_network.pop("Hostname"), without.pop("Hostname")) == ("", "job")
    without.pop("NetworkDisabled")
    for body in (with_network, without):
        body["HostConfig"].pop("NetworkMode")
        body.pop("Cmd")
        body.pop("Labels")
        body.pop("Env")  # the job's id
    assert with_network == without


def test_only_the_reserved_devices_are_asked_for() -> None:
    body = built(device_uuids=("GPU-1", "GPU-2"))
    (request,) = body["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == ["GPU-1", "GPU-2"]
    assert request["Count"] == 0
    assert not [line for line in body["Env"] if line.startswith("NVIDIA_VISIBLE_DEVICES=")]
    assert "DeviceRequests" not in built()["HostConfig"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in built()["Env"]


def test_without_a_cgroup_of_ours_none_is_asked_for() -> None:
    spec = made_spec(image_id=IMAGE.id)
    body = config.build(spec, IMAGE, [MOUNT], ENGINE, cgroup_parent=None)
    assert "CgroupParent" not in body["HostConfig"]


def test_variables_of_an_image_are_taken_away_or_overruled() -> None:
    taken = (
        "LD_PRELOAD=/evil.so",
        "NVIDIA_VISIBLE_DEVICES=all",
        "DOCKER_HOST=x",
        "GLIBC_TUNABLES=x",
        "LD_PRELOAD=y",
    )
    env = built(replace(IMAGE, env=("PATH=/bin", "PYTHONPATH=/app", *taken)))["Env"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in env
    assert [line for line in env if "=" not in line] == ["LD_PRELOAD", "DOCKER_HOST", "GLIBC_TUNABLES"]
    assert not [line for line in env if "evil" in line or line.startswith("PYTHONPATH")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LD_PRELOAD", "x"),
        ("LD_LIBRARY_PATH", "x"),
        ("PYTHONPATH", "x"),
        ("PYTHONSTARTUP", "x"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("DOCKER_HOST", "x"),
        ("GLIBC_TUNABLES", "x"),
        ("JOB_OUTPUTS", "/"),
        ("", "x"),
        ("1A", "x"),
        ("A-B", "x"),
        ("A=B", "x"),
        ("A\n", "x"),
        ("Ä", "x"),
        ("A" * 129, "x"),
        ("A", "nul\0"),
        ("A", "\ud800"),
        ("A", "x" * 32769),
    ],
)
def test_variables_that_no_client_may_set(name: str, value: str) -> None:
    assert variables.problems({name: value})
    with pytest.raises(ExecutionFailed, match="image_refused"):
        built(env={name: value})


def test_variables_are_capped_in_number_and_together() -> None:
    assert variables.problems({f"A{number}": "" for number in range(256)}) == []
    assert variables.problems({f"A{number}": "" for number in range(257)})
    assert variables.problems({f"A{number}": "x" * 30_000 for number in range(3)}) == []
    assert variables.problems({f"A{number}": "x" * 30_000 for number in range(4)})


@pytest.mark.parametrize("argv", [(), ("a\0b",), ("\ud800",), ("x" * 98305,), ("x" * 50_000, "y" * 50_000)])
def test_commands_that_cannot_run(argv: tuple[str, ...]) -> None:
    with pytest.raises(ExecutionFailed, match="image_refused"):
        built(argv=argv)


def test_volumes_of_an_image_are_covered_read_only() -> None:
    tmpfs = built(replace(IMAGE, volumes=("/data", "/tmp", "/var//lib/db/", "/srv/x")))["HostConfig"]["Tmpfs"]
    assert set(tmpfs) == {"/tmp", "/run", "/dev/shm", "/var/lib/db", "/srv/x"}
    for path in ("/var/lib/db", "/srv/x"):
        assert tmpfs[path].startswith("ro,size=4k,nr_inodes=1,")
    assert "mode=0700" in tmpfs["/tmp"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "relative",
        "/proc/x",
        "/sys",
        "/dev/shm",
        "/.site",
        "/.site/control",
        "/data/outputs",
        "/data/inputs/x",
        "/x/../proc",
        "/etc/x",
    ],
)
def test_volumes_over_the_sandboxs_own_places_are_refused(path: str) -> None:
    with pytest.raises(ExecutionFailed, match="image_refused"):
        built(replace(IMAGE, volumes=(path,)))


def test_an_image_of_very_many_volumes_is_refused() -> None:
    with pytest.raises(ExecutionFailed, match="volumes"):
        built(replace(IMAGE, volumes=tuple(f"/v{number}" for number in range(17))))


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("", "/"),
        ("/app/", "/app"),
        ("/proc/self/fd/7", "/"),
        ("/x/../proc/self/fd/7", "/"),
        ("/sys", "/"),
        ("app", "/"),
        ("/process", "/process"),
    ],
)
def test_the_working_folder_is_the_images_where_it_is_harmless(asked: str, given: str) -> None:
    assert built(replace(IMAGE, working_dir=asked))["WorkingDir"] == given


@pytest.mark.parametrize(
    "changes", [{"uid": 0}, {"memory_mib": 0}, {"disk_mib": -1}, {"cores": ()}, {"gate": "a-name"}]
)
def test_a_spec_that_no_rule_lets_through_is_a_bug(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"spec|gate"):
        built(**changes)


def test_a_spec_for_another_image_is_a_bug() -> None:
    with pytest.raises(ValueError, match="image"):
        config.build(made_spec(image_id="sha256:2"), IMAGE, [], ENGINE, cgroup_parent=None)


def test_labels_and_name_tell_whose_it_is() -> None:
    spec = made_spec(image_id=IMAGE.id)
    assert spec.labels["compute-site.attempt"] == spec.attempt
    assert set(spec.labels) == {
        f"compute-site.{name}" for name in ("site", "job", "attempt", "token", "nonce")
    }
    assert container_name("s1", "01890a5d-ac96") == "cs-s1-01890a5dac96"


@pytest.mark.parametrize(
    ("entrypoint", "command", "argv"),
    [
        ((), (), ("/e", "c")),
        ((), ("d",), ("/e", "d")),
        (("f",), (), ("f",)),
        (("f", "-x"), ("d",), ("f", "-x", "d")),
    ],
)
def test_what_runs_follows_dockers_rule(
    entrypoint: tuple[str, ...], command: tuple[str, ...], argv: tuple[str, ...]
) -> None:
    assert final_argv(("/e",), ("c",), entrypoint, command) == argv


def test_what_admission_lets_through_the_sandbox_takes() -> None:
    """Both know the limits, so that neither trusts the other; a job must not be admitted and then refused for them."""
    assert spec_fields.VARIABLES_REFUSED == variables.REFUSED_OF_CLIENTS
    assert spec_fields.VARIABLES_RESERVED == variables.RESERVED
    assert spec_fields.VARIABLE.pattern == variables.NAME.pattern
    assert spec_fields.MAX_VARIABLES <= variables.MAX_COUNT
    assert spec_fields.MAX_VARIABLE_BYTES <= variables.MAX_VALUE
    assert spec_fields.MAX_VARIABLES_BYTES <= variables.MAX_TOTAL
    assert spec_fields.MAX_ARGUMENT_BYTES <= config.MAX_ARGUMENTS - 4096
