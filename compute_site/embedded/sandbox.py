"""What a job's container is made of: the static launcher and the base image, built from this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from . import image, toolchain
from .paths import REPOSITORY, RUN, made
from .progress import Failed, step

LAUNCHER = RUN / "launcher" / "cs-launcher"
_LAUNCHER_SCRIPT = REPOSITORY / "docker/launcher/build"
IMAGE = "compute-site/base:latest"
TOOLS_IMAGE = "compute-site/tools:1"  # the base image with a shell, for tests


def build_launcher() -> Path:
    """Build the launcher unless it is newer than its source; returns its path, raises `Failed`."""
    sources = [path for path in _LAUNCHER_SCRIPT.parent.glob("*") if path.suffix != ".md"]
    if not _LAUNCHER_SCRIPT.exists():
        raise Failed(f"{_LAUNCHER_SCRIPT} is missing: the launcher cannot be built.")
    if LAUNCHER.exists() and LAUNCHER.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return LAUNCHER
    step("launcher: building")
    made(LAUNCHER.parent)
    _run([str(_LAUNCHER_SCRIPT), str(LAUNCHER)], {"CC": toolchain.compiler()})
    return LAUNCHER


def build_image(docker_host: str) -> str:
    """Make the base image on that engine (quick when it is there already); returns its tag, raises `Failed`."""
    step(f"base image: {IMAGE}")
    image.build(docker_host, IMAGE)
    return IMAGE


def build_tools_image(docker_host: str) -> str:
    """Make the image with a shell that tests run jobs in; returns its tag, raises `Failed`."""
    step(f"tools image: {TOOLS_IMAGE}")
    image.build(docker_host, TOOLS_IMAGE, tools=True)
    return TOOLS_IMAGE


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=REPOSITORY, check=False)
    if done.returncode != 0:
        raise Failed(f"{command[0]} failed with code {done.returncode}: see above.")
