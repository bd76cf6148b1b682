"""The sandbox image comes from where it can, on a real engine; and when it cannot, the message says what to do."""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from compute_site.embedded.dockerd import UNPACKED
from workers.sandbox.connection import NotThere
from workers.sandbox.docker import EngineClient
from workers.sandbox_image import NOTE, PACKED, NotProvided, Provided, provide_sandbox_image

pytestmark = pytest.mark.engine
DOCKERFILE = settings.BASE_DIR / "docker/sandbox/Dockerfile"
NOWHERE = "127.0.0.1:9/nowhere:1"  # a registry that refuses every connection


class Engine:
    """The engine of the tests and a name that no image has yet."""

    def __init__(self, cache: Path) -> None:
        self.client = EngineClient(os.environ["DOCKER_HOST"])
        self.wanted = f"compute-site/test-{uuid.uuid4().hex[:12]}:1"
        self.cache = cache

    def provide(self, **changes: Any) -> Provided:
        given: dict[str, Any] = {
            "base": os.environ["SANDBOX_IMAGE"],
            "dockerfile": DOCKERFILE,
            "cache": self.cache,
            "seconds": 60,
        }
        return provide_sandbox_image(self.client, changes.pop("wanted", self.wanted), **(given | changes))

    def lose(self) -> None:
        with suppress(NotThere):
            self.client.call("DELETE", f"/images/{self.wanted}", params={"force": "1"})
        assert self.client.image(self.wanted) is None


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    if not os.environ.get("DOCKER_HOST") or not os.environ.get("SANDBOX_IMAGE"):
        pytest.skip("DOCKER_HOST or SANDBOX_IMAGE IS NOT SET (./run test sets them)")
    engine = Engine(tmp_path)
    yield engine
    engine.lose()
    engine.client.close()


def test_built_then_there_then_from_the_cache(engine: Engine) -> None:
    built = engine.provide()
    assert built.how == f"built from {os.environ['SANDBOX_IMAGE']}"
    assert built.image.user == "65534:65534"
    assert {path.name for path in engine.cache.iterdir()} == {PACKED, NOTE}
    packed = (engine.cache / PACKED).stat().st_mtime_ns
    assert engine.provide(base=NOWHERE).how == "there already"
    assert (engine.cache / PACKED).stat().st_mtime_ns == packed
    engine.lose()
    loaded = engine.provide(base=NOWHERE)
    assert (loaded.how, loaded.image.id) == ("loaded from the cache", built.image.id)
    for path in engine.cache.iterdir():
        path.unlink()
    assert engine.provide(base=NOWHERE).how == "there already"
    assert (engine.cache / PACKED).exists()


def test_half_a_cache_is_as_none(engine: Engine) -> None:
    (engine.cache / PACKED).write_bytes(b"half of it")
    (engine.cache / NOTE).write_text(json.dumps({"reference": engine.wanted, "id": "sha256:0"}))
    assert engine.provide().how.startswith("built")
    assert (engine.cache / PACKED).stat().st_size > 1 << 20


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (
            "",
            f"could not be built from {NOWHERE}: .*SANDBOX_BASE, or .*: docker/base/build compute-site/test-",
        ),
        (NOWHERE, f"no image {NOWHERE}, and it could not be pulled: .*SANDBOX_IMAGE"),
    ],
)
def test_where_nothing_helps_the_way_out_is_told(engine: Engine, wanted: str, says: str) -> None:
    with pytest.raises(NotProvided, match=says):
        engine.provide(wanted=wanted or engine.wanted, base=NOWHERE)
    assert list(engine.cache.iterdir()) == []


def test_packages_of_the_context_are_found_and_nothing_sets_a_user(engine: Engine, tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "packages").mkdir(parents=True)
    (context / "packages" / "own_package.py").write_text("WORD = 'found'\n")
    environment = {**os.environ, "PATH": f"{UNPACKED / 'usr/bin'}:{os.environ['PATH']}"}
    command = ["docker", "build", "-q", "-t", engine.wanted, "--network=none"]
    command += [f"--build-arg=BASE={os.environ['SANDBOX_IMAGE']}", "-f", str(DOCKERFILE), str(context)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    program = (
        "import own_package, os; print(own_package.WORD, sum(os.lstat(os.path.join(f, n)).st_mode & 0o6000 != 0"
        " for f, _, names in os.walk('/usr') for n in names))"
    )
    run = ["docker", "run", "--rm", "--network=none", engine.wanted, "python3", "-I", "-c", program]
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "found 0\n"
