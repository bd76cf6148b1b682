import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_site.embedded.paths import Places


@pytest.fixture
def places() -> Iterator[Places]:
    """Folders of our own, short enough for sockets and open to the unprivileged user; gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="cst-", dir="/tmp"))
    root.chmod(0o755)
    here = Places(root)
    yield here
    shutil.rmtree(here.sockets, ignore_errors=True)
    shutil.rmtree(root)


@pytest.fixture
def as_root() -> None:
    if os.getuid() != 0:
        pytest.skip("needs root: a private engine cannot be started without it")
