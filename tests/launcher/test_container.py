"""The launcher where it belongs: PID 1 of real containers, hardened as a job's are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_site.embedded.engine_api import EngineApi
from tests import images
from tests.launcher.namespace import AS_ROOT, UID, Container, Runner, until


@pytest.fixture(scope="module")
def docker_host() -> str:
    host = os.environ.get("DOCKER_HOST", "")
    if not host.startswith("unix://") or not AS_ROOT:
        pytest.skip(
            "NEEDS ROOT AND A DOCKER_HOST ON THIS MACHINE (./run test sets it): NOT TESTED IN CONTAINERS"
        )
    return host


class Hardened(Container):
    """A container of the engine's; `control` as in a namespace of our own."""

    def __init__(self, api: EngineApi, control: Path, name: str) -> None:
        self.api, self.control, self.name = api, control, name

    def wait(self, timeout: float = 30) -> int:
        del timeout
        return int(self.api.post(f"/containers/{self.name}/wait")["StatusCode"])

    def kill(self, name: str) -> None:
        self.api.post(f"/containers/{self.name}/kill", signal=name)


@pytest.fixture
def contain(docker_host: str, runner: Runner) -> Iterator[Callable[..., Hardened]]:
    api, made = EngineApi(docker_host), []

    def start(image: str, *argv: str, deadline: int = 20, grace: int = 1, memory: int = 64) -> Hardened:
        control = runner.control()
        mounts = [
            {"Type": "bind", "Source": str(runner.launcher), "Target": "/.site/launcher", "ReadOnly": True},
            {"Type": "bind", "Source": str(control), "Target": "/.site/control"},
        ]
        host: dict[str, Any] = {
            "Mounts": mounts, "ReadonlyRootfs": True, "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"],
            "LogConfig": {"Type": "none"}, "Init": False, "PidsLimit": 64,
            "Memory": memory << 20, "MemorySwap": memory << 20,
        }  # fmt: skip
        entrypoint = ["/.site/launcher", "/.site/control", str(deadline), "1000000", str(grace), "--", *argv]
        body = {
            "Image": image,
            "Entrypoint": entrypoint,
            "Cmd": [],
            "User": f"{UID}:{UID}",
            "NetworkDisabled": True,
        }
        name = api.post("/containers/create", {**body, "HostConfig": host})["Id"]
        made.append(name)
        api.post(f"/containers/{name}/start")
        return Hardened(api, control, name)

    yield start
    for name in made:
        api.delete(f"/containers/{name}")


def test_image_without_libc_or_shell(docker_host: str, contain: Callable[..., Hardened]) -> None:
    image = images.static_only(docker_host)
    container = contain(image, "/usr/bin/busybox", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert container.wait() == 3
    assert (container.log(), container.log("stderr")) == (b"out\n", b"err\n")
    assert (container.marker()["status"], container.marker()["code"]) == ("exited", 3)
    assert container.marker()["boot_id_start"] == container.marker()["boot_id_end"] != ""


def test_program_that_the_image_lacks(docker_host: str, contain: Callable[..., Hardened]) -> None:
    container = contain(images.static_only(docker_host), "python3")
    assert (container.wait(), container.marker()["status"]) == (127, "exec_failed")


def test_stop_is_forwarded(docker_host: str, contain: Callable[..., Hardened]) -> None:
    image = images.tools(docker_host)
    container = contain(
        image, "sh", "-c", "trap 'echo stopped; exit 5' TERM; echo ready; while :; do sleep 0.02; done"
    )
    until(container.log)
    container.kill("TERM")
    assert (container.wait(), container.log()) == (5, b"ready\nstopped\n")
    assert container.marker()["termed"] is True


def test_kill_leaves_no_marker_and_a_second_start_runs_nothing(
    docker_host: str, contain: Callable[..., Hardened]
) -> None:
    container = contain(images.tools(docker_host), "sh", "-c", "echo once; sleep 60")
    until(container.log)
    container.kill("KILL")
    assert container.wait() == 137
    assert (container.control / "marker").read_bytes() == b"\n"
    container.api.post(f"/containers/{container.name}/start")
    assert (container.wait(), container.log()) == (125, b"once\n")


def test_memory_of_the_job_ends_the_job_and_not_the_launcher(
    docker_host: str, contain: Callable[..., Hardened]
) -> None:
    image = images.tools(docker_host)
    for _ in range(3):
        container = contain(
            image, "python3", "-I", "-S", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"
        )
        assert container.wait() == 128 + signal.SIGKILL
        assert (container.marker()["status"], container.marker()["signal"]) == ("signaled", signal.SIGKILL)
        assert container.marker()["termed"] is container.marker()["deadline"] is False


def test_deadline(docker_host: str, contain: Callable[..., Hardened]) -> None:
    container = contain(images.tools(docker_host), "sh", "-c", "trap '' TERM; sleep 60", deadline=1, grace=0)
    assert (container.wait(), container.marker()["deadline"]) == (124, True)
