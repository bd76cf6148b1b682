"""The base image: what is in it, that it comes out the same, and that it loads into a real engine."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from compute_site.embedded import image, rootfs
from compute_site.embedded.engine_api import EngineApi
from compute_site.embedded.progress import Failed
from compute_site.embedded.sandbox import TOOLS_IMAGE
from tests import images

TAG = "compute-site-test/base:1"


@pytest.fixture(scope="module")
def docker_host():
    host = os.environ.get("DOCKER_HOST", "")
    if not host:
        pytest.skip("DOCKER_HOST IS NOT SET: NO IMAGE IS LOADED (./run test sets it)")
    return host


@pytest.fixture(scope="module")
def base():
    return rootfs.base()


def run(docker_host: str, tag: str, *command: str) -> tuple[int, str]:
    """Run one container to its end; its exit code and what it said."""
    api = EngineApi(docker_host)
    host = {"LogConfig": {"Type": "json-file"}, "ReadonlyRootfs": True}
    body = {"Image": tag, "Cmd": [*command], "User": "4242:4242", "NetworkDisabled": True, "Tty": True}
    container = api.post("/containers/create", {**body, "HostConfig": host})["Id"]
    try:
        api.post(f"/containers/{container}/start")
        code = api.post(f"/containers/{container}/wait")["StatusCode"]
        _, said = api._call("GET", f"/containers/{container}/logs?stdout=1&stderr=1", None, {})
        return code, said.decode()
    finally:
        api.delete(f"/containers/{container}")


# -- packing ----------------------------------------------------------------------------------------------------------


def test_pack_depends_on_nothing_but_the_content(tmp_path: Path):
    for name, order in (("one", ["b", "a"]), ("two", ["a", "b"])):
        (tmp_path / name / "folder").mkdir(parents=True)
        for file in order:
            (tmp_path / name / "folder" / file).write_text(file)
        (tmp_path / name / "link").symlink_to("folder/a")
    os.utime(tmp_path / "one/folder/a", (1, 1))
    os.utime(tmp_path / "two/folder", (1, 1))
    for name in ("one", "two"):
        rootfs.pack(tmp_path / name, tmp_path / f"{name}.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_pack_gives_root_everything_and_nobody_set_id(tmp_path: Path):
    tree = tmp_path / "tree"
    (tree / "tmp").mkdir(parents=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "tool").write_text("x")
    (tree / "tool").chmod(0o6755)
    os.link(tree / "tool", tree / "twin")
    rootfs.pack(tree, tmp_path / "tar")
    with tarfile.open(tmp_path / "tar") as archive:
        found = {entry.name: entry for entry in archive}
    assert {name: entry.mode for name, entry in found.items()} == {
        "tmp": 0o1777,
        "tool": 0o755,
        "twin": 0o755,
    }
    assert found["twin"].isreg()
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in found.values()} == {
        (0, 0, "", rootfs.MTIME)
    }


def test_pack_refuses_what_is_no_file(tmp_path: Path):
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "fifo")
    with pytest.raises(Failed, match="fifo"):
        rootfs.pack(tmp_path / "tree", tmp_path / "tar")


# -- the base layer ---------------------------------------------------------------------------------------------------


def test_base_holds_python_and_no_shell(base):
    with tarfile.open(base.path) as archive:
        entries = {entry.name: entry for entry in archive}
    assert entries["usr/bin/python3"].issym()
    assert {name for name in entries if name.startswith("usr/bin/")} <= {
        name for name in entries if "python" in name or "pydoc" in name or "py3" in name
    }
    assert not [
        name
        for name, entry in entries.items()
        if entry.mode & 0o6000 or not (entry.isreg() or entry.issym() or entry.isdir())
    ]
    assert not [name for name in entries if name.startswith(("var/", "usr/share/man/", "usr/share/locale/"))]
    for name in (".site/launcher", ".site/control", "data", "tmp", "etc/passwd"):
        assert name in entries
    assert base.path.stat().st_size < 60_000_000


def test_base_is_made_the_same_again(base, tmp_path: Path):
    tree = tmp_path / "a-tree-with-quite-another-path"
    tree.mkdir()
    rootfs._make_base(tree)
    rootfs.pack(tree, tmp_path / "layer")
    assert "sha256:" + hashlib.sha256((tmp_path / "layer").read_bytes()).hexdigest() == base.digest


# -- on the engine ----------------------------------------------------------------------------------------------------


def test_build_gives_the_id_that_follows_from_the_content(docker_host, base):
    made = image.build(docker_host, TAG, refresh=True)
    architecture = EngineApi(docker_host).get("/version")["Arch"]
    text = json.dumps(
        image.config(architecture, [base], rootfs.recipe()), sort_keys=True, separators=(",", ":")
    )
    assert made == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_build_leaves_a_present_image_alone(docker_host, monkeypatch):
    made = image.build(docker_host, TAG)
    monkeypatch.setattr(rootfs, "base", lambda: pytest.fail("made again"))
    assert image.build(docker_host, TAG) == made


def test_every_module_is_there_and_compiled(docker_host):
    image.build(docker_host, TAG)
    source = """
import importlib, os, sys, warnings
warnings.simplefilter("ignore")
windows = {"msilib", "msvcrt", "nt", "winreg", "winsound", "_msi", "_overlapped", "_scproxy", "_winapi"}
left_out = {"_gdbm", "_tkinter", "tkinter", "turtle", "turtledemo", "idlelib", "ensurepip", "lib2to3", "nis"}
bad = []
for name in sorted(sys.stdlib_module_names - windows - left_out - {"antigravity", "this"}):
    try:
        cached = getattr(importlib.import_module(name), "__cached__", None)
        if cached and not os.path.exists(cached): bad.append(name + " is not compiled")
    except Exception as error: bad.append(f"{name}: {error}")
print(bad, sys.getfilesystemencoding(), os.path.exists("/bin/sh"))
"""
    assert run(docker_host, TAG, "python3", "-I", "-c", source) == (0, "[] utf-8 False\r\n")


def test_tools_add_a_shell(docker_host):
    images.tools(docker_host)
    assert run(docker_host, TOOLS_IMAGE, "sh", "-c", "id -u; python3 -I -c 'print(1)'") == (
        0,
        "4242\r\n1\r\n",
    )


def test_broken_archive_is_refused_and_the_tag_stays(docker_host, tmp_path: Path):
    before = image.build(docker_host, TAG)
    (tmp_path / "broken").write_bytes(b"\0" * 10_240)
    with pytest.raises(Failed):
        EngineApi(docker_host).load(tmp_path / "broken")
    assert image.build(docker_host, TAG) == before


def test_silent_engine_is_told_by_address():
    with pytest.raises(Failed, match="unix:///no/such/socket"):
        image.build("unix:///no/such/socket", TAG)


# -- the images that ask for too much ---------------------------------------------------------------------------------


def test_hostile_image_asks_for_all_of_it(docker_host):
    images.hostile(docker_host, {"extra": "label"})
    found = EngineApi(docker_host).image("compute-site-test/hostile:1")
    assert found is not None
    asked = found["Config"]
    assert asked["User"] == "root"
    assert images.SAID in asked["Entrypoint"][2]
    assert set(asked["Volumes"]) == set(images.VOLUMES)
    assert asked["StopSignal"] == "SIGUSR1"
    assert asked["Healthcheck"]["Test"][0] == "CMD-SHELL"
    assert set(asked["Env"]) >= {f"{name}={value}" for name, value in images.ENVIRONMENT.items()}
    assert {"own", "extra"} <= set(asked["Labels"])


def test_other_images_are_what_they_say(docker_host):
    user = EngineApi(docker_host).image(images.unknown_user(docker_host))
    other = EngineApi(docker_host).image(images.other_architecture(docker_host))
    assert user is not None
    assert user["Config"]["User"] == "nobody-knows:nobody-knows"
    assert other is not None
    assert other["Architecture"] == "s390x"
    images.privileged_files(docker_host, 4242)
    code, said = run(docker_host, "compute-site-test/privileged:1", "sh", "-c", "ls -ln /own/become-root; id")
    assert code == 0
    assert said.startswith("-rwsr-sr-x")
    assert "uid=4242(own)" in said
