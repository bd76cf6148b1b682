"""Makes the base image on an engine, with no registry: `docker/base/build [--tools] [--refresh] TAG`."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import rootfs
from .engine_api import EngineApi
from .paths import made
from .progress import Failed, step, warn
from .rootfs import Layer

RECIPE = "io.compute-site.recipe"  # the label by which an image that is there already is known
_CREATED = "2020-01-01T00:00:00Z"
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}


def build(docker_host: str, tag: str, *, tools: bool = False, refresh: bool = False) -> str:
    """Make the image `tag` on that engine and return its id.

    `tools` adds a shell and small programs. An image made by this recipe is left alone, also when newer
    packages exist, unless `refresh`. Raises `Failed`; then the tag is what it was.
    """
    api = EngineApi(docker_host)
    recipe = rootfs.recipe() + ("-tools" if tools else "")
    found = api.image(tag)
    if found and not refresh and (found["Config"].get("Labels") or {}).get(RECIPE) == recipe:
        return str(found["Id"])
    architecture = _ARCHITECTURES.get(os.uname().machine, os.uname().machine)
    if (theirs := api.get("/version")["Arch"]) != architecture:
        raise Failed(f"the engine runs {theirs} and this machine {architecture}: make the image there.")
    layers = [rootfs.base(), *([rootfs.tools()] if tools else [])]
    with tempfile.TemporaryDirectory(dir=made(rootfs.CACHE)) as folder:
        archive = Path(folder) / "image.tar"
        write_archive(archive, tag, layers, config(architecture, layers, recipe))
        step(f"image: loading {tag} ({archive.stat().st_size / 1e6:.0f} MB)")
        api.load(archive)
    loaded = api.image(tag)
    if loaded is None:
        raise Failed(f"the engine loaded the image but does not know {tag}.")
    return str(loaded["Id"])


def config(architecture: str, layers: Sequence[Layer], recipe: str) -> dict[str, Any]:
    """The image's own configuration. Its sha256 is the image id: nothing in it depends on when or where."""
    return {
        "architecture": architecture,
        "os": "linux",
        "created": _CREATED,
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
            "Cmd": ["python3"],
            "WorkingDir": "/",
            "Labels": {RECIPE: recipe},
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        "history": [{"created": _CREATED, "created_by": "docker/base/build"} for _ in layers],
    }


def write_archive(target: Path, tag: str, layers: Sequence[Layer], configuration: dict[str, Any]) -> None:
    """Write what `docker save` would: a manifest, the configuration and the layers."""
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()
    name = hashlib.sha256(text).hexdigest() + ".json"
    files = [layer.digest.removeprefix("sha256:") + ".tar" for layer in layers]
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": files}]).encode()
    with tarfile.open(target, "w") as archive:
        for member, content in (("manifest.json", manifest), (name, text)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for layer, file in zip(layers, files, strict=True):
            archive.add(layer.path, arcname=file)


def main(arguments: Sequence[str]) -> int:
    """The command; prints the image id as its last line."""
    parser = argparse.ArgumentParser(prog="docker/base/build", description=__doc__)
    parser.add_argument("--tools", action="store_true", help="with a shell and small programs (busybox)")
    parser.add_argument("--refresh", action="store_true", help="make it anew, with the newest packages")
    parser.add_argument("tag")
    chosen = parser.parse_args(arguments)
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        print(build(host, chosen.tag, tools=chosen.tools, refresh=chosen.refresh), flush=True)
    except Failed as problem:
        warn(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
