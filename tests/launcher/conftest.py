"""The launcher, built from its source."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.namespace import Runner

BUILD = Path(__file__).parents[2] / "docker" / "launcher" / "build"


@pytest.fixture(scope="session")
def launcher() -> Iterator[Path]:
    """Built here from the source; with no compiler, the one that LAUNCHER names."""
    folder = Path(tempfile.mkdtemp(prefix="cs-launcher-"))
    folder.chmod(0o711)
    target = folder / "launcher"
    compiler = os.environ.get("CC", "gcc").split()[0]
    if shutil.which(compiler):
        subprocess.run([str(BUILD), str(target)], check=True)
    elif "LAUNCHER" in os.environ:
        shutil.copy(os.environ["LAUNCHER"], target)
    else:
        pytest.fail("neither a C compiler nor LAUNCHER: the launcher cannot be tested")
    yield target
    shutil.rmtree(folder)


@pytest.fixture
def runner(launcher: Path) -> Iterator[Runner]:
    if shutil.which("unshare") is None:
        pytest.fail("unshare is missing: the launcher only runs as PID 1")
    made = Runner(launcher)
    yield made
    made.close()
