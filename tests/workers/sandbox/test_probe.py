"""The probe against the real engine, and against engines that lack something."""

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workers.sandbox import cgroup, config, loop, probe
from workers.sandbox.docker import EngineClient, EngineFacts, ImageFacts
from workers.sandbox.volume_archive import launcher_volume
from workers.sandbox.volume_shared import traces


@pytest.fixture
def given(
    engine_client: EngineClient, engine: EngineFacts, launcher: str, sandbox_image: str, tmp_path: Path
) -> dict[str, Any]:
    """The arguments of a probe of this machine's engine, for a site of its own."""
    image = engine_client.image(sandbox_image)
    assert isinstance(image, ImageFacts)
    site = "pr" + uuid.uuid4().hex[:6]
    return {"state_dir": str(tmp_path), "launcher": launcher, "site": site, "image": image, "facts": engine}


def nothing_is_left(client: EngineClient, given: dict[str, Any]) -> None:
    assert client.remove_volume(
        launcher_volume(given["site"], given["launcher"])
    )  # it may stay, for the jobs to come
    assert client.list_site(given["site"]) == []
    assert client.list_volumes(given["site"]) == []
    assert traces(given["state_dir"], given["site"]) == []
    assert cgroup.existing(given["site"]) == set()


def test_root_on_the_engines_host_has_everything(engine_client: EngineClient, given: dict[str, Any]) -> None:
    if os.geteuid():
        pytest.fail("run as root on the engine's host")
    found = probe.probe(engine_client, **given)
    assert found == probe.Probe("shared", "loop", True, True, True, ())
    nothing_is_left(engine_client, given)


def test_without_loop_devices_the_disk_is_watched(
    engine_client: EngineClient, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MKFS", ())
    found = probe.probe(engine_client, **given)
    assert (found.workspace_mode, found.disk_mode, found.cgroup_parent) == ("shared", "watchdog", True)
    assert any("mkfs.ext4" in note for note in found.notes)
    nothing_is_left(engine_client, given)


def test_who_is_not_root_gets_the_archive_way(
    engine_client: EngineClient, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = probe.probe(engine_client, **given)
    assert (found.workspace_mode, found.disk_mode, found.cgroup_parent) == ("archive", "watchdog", False)
    assert found.seccomp
    assert len(found.notes) >= 3
    nothing_is_left(engine_client, given)


def test_an_engine_that_sees_another_folder_at_the_path_gets_the_archive_way(
    engine_client: EngineClient, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with a remote engine that happens to have the same path, or one in a mount namespace of its own."""
    genuine = config.build

    def elsewhere(spec: Any, image: Any, mounts: Any, engine: Any, **options: Any) -> dict[str, Any]:
        (tmp_path / "elsewhere" / "outputs").mkdir(parents=True, exist_ok=True)
        changed = [
            mount | {"Source": str(tmp_path / "elsewhere")}
            if mount["Type"] == "bind" and mount["Target"] == "/data"
            else mount
            for mount in mounts
        ]
        return genuine(spec, image, changed, engine, **options)

    monkeypatch.setattr(config, "build", elsewhere)
    found = probe.probe(engine_client, **given)
    assert found.workspace_mode == "archive"
    nothing_is_left(engine_client, given)


def test_an_engine_without_seccomp_is_refused(
    engine_client: EngineClient, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = config.build

    def unconfined(*arguments: Any, **options: Any) -> dict[str, Any]:
        body = genuine(*arguments, **options)
        body["HostConfig"]["SecurityOpt"] = ["no-new-privileges", "seccomp=unconfined"]
        return body

    monkeypatch.setattr(config, "build", unconfined)
    with pytest.raises(probe.ProbeFailed, match="seccomp"):
        probe.probe(engine_client, **given)
    nothing_is_left(engine_client, given)


def test_when_nothing_works_every_way_is_told(engine_client: EngineClient, given: dict[str, Any]) -> None:
    given["image"] = replace(given["image"], id="sha256:" + "0" * 64)
    with pytest.raises(probe.ProbeFailed) as refusal:
        probe.probe(engine_client, **given)
    for way in probe.ways(engine_client.endpoint):
        assert f"{way}: " in str(refusal.value)
    nothing_is_left(engine_client, given)


def test_in_a_container_no_cgroup_is_made_that_nobody_could_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroup, "within_reach", lambda: False)
    found = [(way.mode, way.disk, way.cgroup_parent) for way in probe.ways("unix:///socket")]
    assert found == [("shared", "loop", False), ("shared", "watchdog", False), ("archive", "watchdog", False)]
