"""Images that ask for more than a job may have, made on the engine itself: no registry, no Docker SDK.

Each function makes its image (again, if need be) and returns its id. They start from the image with tools, so that
`sh` and `python3` are in all of them but `static_only`.
"""

from __future__ import annotations

import functools
import io
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compute_site.embedded import image, rootfs
from compute_site.embedded.engine_api import EngineApi
from compute_site.embedded.sandbox import TOOLS_IMAGE

SAID = "the image's own entrypoint ran"
VOLUMES = ("/var/own", "/srv/own/deep", "/data")
ENVIRONMENT = {
    "LD_PRELOAD": "/own/preload.so",
    "LD_LIBRARY_PATH": "/own",
    "PYTHONPATH": "/own",
    "PYTHONSTARTUP": "/own/start.py",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "all",
    "DOCKER_HOST": "unix:///own/docker.sock",
    "OWN": "harmless",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file to put into an image, owned by root."""

    content: bytes
    mode: int = 0o644


def tools(docker_host: str) -> str:
    """The base image with a shell and small programs: tag `TOOLS_IMAGE`."""
    return image.build(docker_host, TOOLS_IMAGE, tools=True)


def hostile(docker_host: str, labels: Mapping[str, str] | None = None) -> str:
    """Sets everything an image can set: entrypoint, root, volumes, health check, environment, stop signal, labels.

    `labels` are added to its own, for a test that lets it pose as somebody's container.
    """
    configuration = {
        "Entrypoint": ["/bin/sh", "-c", f"echo {SAID}; exec sleep 1000"],
        "Cmd": ["its", "own", "command"],
        "User": "root",
        "WorkingDir": "/var/own",
        "Volumes": {folder: {} for folder in VOLUMES},
        "ExposedPorts": {"80/tcp": {}},
        "StopSignal": "SIGUSR1",
        "Healthcheck": {
            "Test": ["CMD-SHELL", "echo unhealthy >> /var/own/health; exit 1"],
            "Interval": 1_000_000_000,
            "Timeout": 1_000_000_000,
            "Retries": 1,
        },
        "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
        "Labels": {"own": "label", "com.docker.compose.project": "own", **(labels or {})},
    }
    files = {
        "own/start.py": File(b"raise SystemExit(99)\n"),
        "own/sitecustomize.py": File(b"raise SystemExit(99)\n"),
        "own/preload.so": File(b"not a library\n", 0o755),
        "var/own/planted": File(b"here before\n", 0o666),
    }
    return committed(docker_host, "compute-site-test/hostile:1", configuration, files)


def privileged_files(docker_host: str, uid: int) -> str:
    """Has set-id programs, and an /etc where `uid` is somebody of many groups, among them those of disk and docker."""
    member = f"own:x:{uid}:{uid}:own:/own:/bin/sh\n"
    groups = "".join(f"{name}:x:{gid}:own\n" for name, gid in (("root", 0), ("disk", 6), ("docker", 999)))
    files = {
        "etc/passwd": File(b"root:x:0:0:root:/:/bin/sh\n" + member.encode()),
        "etc/group": File(groups.encode() + f"own:x:{uid}:\n".encode()),
        "own/become-root": File(_busybox(), 0o6755),
    }
    return committed(docker_host, "compute-site-test/privileged:1", {"User": "own"}, files)


def unknown_user(docker_host: str) -> str:
    """Its user is in no passwd file: the engine answers 500 at the start unless a numeric one is given."""
    return committed(
        docker_host, "compute-site-test/unknown-user:1", {"User": "nobody-knows:nobody-knows"}, {}
    )


def static_only(docker_host: str) -> str:
    """One static program at /usr/bin/busybox and nothing else: no C library, no /bin, no /etc, no /tmp."""
    return _loaded(docker_host, "compute-site-test/static:1", None)


def other_architecture(docker_host: str) -> str:
    """Says that it is made for s390x; its program is this machine's all the same."""
    return _loaded(docker_host, "compute-site-test/s390x:1", "s390x")


def committed(docker_host: str, tag: str, configuration: Mapping[str, Any], files: Mapping[str, File]) -> str:
    """The image with tools plus `files`, with `configuration` (Docker's names) over its own."""
    tools(docker_host)
    api = EngineApi(docker_host)
    container = api.post(
        "/containers/create", {"Image": TOOLS_IMAGE, "Cmd": ["true"], "NetworkDisabled": True}
    )["Id"]
    try:
        if files:
            api.put_archive(container, "/", _archive(files))
        repository, _, version = tag.partition(":")
        made = api.post("/commit", dict(configuration), container=container, repo=repository, tag=version)
    finally:
        api.delete(f"/containers/{container}")
    return str(made["Id"])


@functools.cache
def _tools_layer() -> rootfs.Layer:
    return rootfs.tools()


def _loaded(docker_host: str, tag: str, architecture: str | None) -> str:
    api = EngineApi(docker_host)
    layers = [_tools_layer()]
    configuration = image.config(architecture or api.get("/version")["Arch"], layers, "test")
    configuration["config"]["Cmd"] = ["busybox"]
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "image.tar"
        image.write_archive(archive, tag, layers, configuration)
        api.load(archive)
    found = api.image(tag)
    assert found is not None
    return str(found["Id"])


def _busybox() -> bytes:
    with tarfile.open(_tools_layer().path) as layer:
        member = layer.extractfile("usr/bin/busybox")
        assert member is not None
        return member.read()


def _archive(files: Mapping[str, File]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(file.content), file.mode, rootfs.MTIME
            archive.addfile(entry, io.BytesIO(file.content))
    return target.getvalue()
