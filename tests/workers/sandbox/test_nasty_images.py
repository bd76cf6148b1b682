"""Images that ask for more than a job may have gain nothing by it."""

import json
import time
from typing import Any

import pytest

from tests import images
from tests.workers.sandbox.conftest import PROGRAMS, Maker, Run, needed
from workers.sandbox.docker import EngineClient

pytestmark = pytest.mark.engine

LOOK = ("python3", "-I", "-c", (PROGRAMS / "look.py").read_text())


@pytest.fixture(scope="module")
def docker_host() -> str:
    needed("TOOLS_IMAGE")
    return needed("DOCKER_HOST")


def volumes(client: EngineClient) -> set[str]:
    found: Any = client.get("/volumes")
    return {volume["Name"] for volume in found["Volumes"] or ()}


def looked(run: Run) -> dict[str, Any]:
    run.whole()
    assert run.errors == b""
    seen: dict[str, Any] = json.loads(run.log)
    return seen


def test_everything_an_image_can_set_has_no_effect(
    make: Maker, engine_client: EngineClient, docker_host: str
) -> None:
    before = volumes(engine_client)
    image = images.hostile(docker_host, {"compute-site.site": "another", "compute-site.nonce": "forged"})
    run = make(image, argv=LOOK)
    seen = looked(run)

    assert seen["pid1"] == "/.site/launcher"
    assert seen["uid"] == [run.spec.uid] * 3
    assert seen["groups"] in ([], [run.spec.uid])
    assert len(seen["processes"]) == 2
    assert images.SAID.encode() not in run.log
    for folder in ("/var/own", "/srv/own/deep"):
        mount = seen["mounts"][folder]
        assert mount["type"] == "tmpfs"
        assert {"ro", "size=4k", "nosuid", "nodev", "noexec"} <= set(mount["options"])
    assert volumes(engine_client) == before

    taken = {name for name in images.ENVIRONMENT if name.startswith(("LD_", "NVIDIA_", "DOCKER_"))}
    assert taken & set(seen["env"]) == {"NVIDIA_VISIBLE_DEVICES"}
    assert seen["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert seen["env"]["OWN"] == "harmless"

    facts = engine_client.inspect(run.id)
    assert facts is not None
    assert run.spec.labels.items() <= facts.labels.items()
    assert not [listed for listed in engine_client.list_site("another") if listed.id == run.id]


def test_an_images_health_check_and_stop_signal_are_not_used(
    make: Maker, engine_client: EngineClient, docker_host: str
) -> None:
    program = "import time, os\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    run = make(images.hostile(docker_host), argv=("python3", "-I", "-c", program))
    run.create()
    run.start()
    time.sleep(1.3)  # the image's interval is one second
    raw = engine_client.inspect_raw(run.id)
    assert raw is not None
    assert "Health" not in raw["State"]
    assert raw["Config"]["StopSignal"] == "SIGTERM"
    api: Any = engine_client.api
    api.stop(run.id, timeout=10)
    run.wait(1)
    assert run.marker is not None
    assert (run.marker.status, run.marker.signal, run.marker.termed) == ("signaled", 15, True)


def test_groups_and_set_id_programs_of_an_image_give_no_right(make: Maker, docker_host: str) -> None:
    uid = 300_777
    image = images.privileged_files(docker_host, uid)
    seen = looked(make(image, argv=LOOK, uid=uid))
    assert seen["groups"] in ([], [uid])
    assert seen["gid"] == [uid] * 3
    program = "import os; os.execv('/own/become-root', ['busybox', 'id', '-u'])"
    become = make(image, argv=("python3", "-c", program), uid=uid).whole()
    assert become.log == f"{uid}\n".encode()


def test_an_unknown_user_of_an_image_does_not_matter(make: Maker, docker_host: str) -> None:
    run = make(images.unknown_user(docker_host), argv=LOOK)
    assert looked(run)["uid"] == [run.spec.uid] * 3


def test_an_image_without_anything_runs_its_one_program(make: Maker, docker_host: str) -> None:
    run = make(images.static_only(docker_host), argv=("/usr/bin/busybox", "echo", "alone")).whole()
    assert run.log == b"alone\n"


def test_the_architecture_that_an_image_claims_is_told(engine_client: EngineClient, docker_host: str) -> None:
    facts = engine_client.image(images.other_architecture(docker_host))
    assert facts is not None
    assert facts.architecture == "s390x"
