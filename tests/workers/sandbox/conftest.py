"""A real engine, a real image, the real launcher; and a way to run one container under the full profile."""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from workers.sandbox import cgroup, config, readback
from workers.sandbox.docker import ContainerFacts, EngineClient, EngineFacts
from workers.sandbox.marker import Marker
from workers.sandbox.networks import remove_network
from workers.sandbox.spec import Spec, container_name
from workers.sandbox.volume_shared import SharedWorkspace

PROGRAMS = Path(__file__).parent / "programs"
SITE = "test" + uuid.uuid4().hex[:6]


def needed(name: str) -> str:
    """A variable that `./run test` sets; loud when it is absent, and a failure where nothing may be left out."""
    value = os.environ.get(name, "")
    if not value and os.environ.get("CI"):
        pytest.fail(f"{name} is not set: the sandbox cannot be tested")
    if not value:
        pytest.skip(f"{name} IS NOT SET: THE SANDBOX IS NOT TESTED (./run test sets it)")
    return value


@pytest.fixture(scope="session")
def engine_client() -> Iterator[EngineClient]:
    client = EngineClient(needed("DOCKER_HOST"))
    yield client
    for facts in client.list_site(SITE):
        client.remove(facts.id)
    remove_network(client, SITE)
    for name in cgroup.existing(SITE):
        cgroup.remove(name)
    cgroup.remove(f"/compute-site-{SITE}")
    client.close()


@pytest.fixture(scope="session")
def engine(engine_client: EngineClient) -> EngineFacts:
    return engine_client.facts()


@pytest.fixture(scope="session")
def sandbox_image() -> str:
    """Python without a shell."""
    return needed("SANDBOX_IMAGE")


@pytest.fixture(scope="session")
def launcher() -> str:
    return needed("LAUNCHER")


@pytest.fixture(scope="session")
def state_dir() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="cs-sandbox-")
    yield folder
    shutil.rmtree(folder)


def made_spec(**changes: Any) -> Spec:
    """A small job's spec; `image_id` must be given."""
    attempt = str(uuid.uuid4())
    given: dict[str, Any] = {
        "site": SITE,
        "job": str(uuid.uuid4()),
        "attempt": attempt,
        "token": "7",
        "nonce": uuid.uuid4().hex,
        "name": container_name(SITE, attempt),
        "argv": ("python3", "-c", "pass"),
        "env": {},
        "uid": 200_000 + os.getpid() % 10_000,
        "cores": (0,),
        "memory_mib": 128,
        "disk_mib": 64,
        "max_duration": 60,
        "log_cap": 2**20,
    }
    return Spec(**(given | changes))


@dataclass
class Run:
    """One container from create to its end, with everything that it left."""

    client: EngineClient
    spec: Spec
    workspace: SharedWorkspace
    config: dict[str, Any]
    id: str = ""
    facts: ContainerFacts | None = None
    log: bytes = b""
    errors: bytes = b""
    marker: Marker | None = None
    differences: list[str] = field(default_factory=list)

    @property
    def cgroup(self) -> str:
        return cgroup.parent(self.spec.site, self.spec.attempt)

    def create(self) -> None:
        self.id = self.client.create(self.spec.name, self.config)
        inspected = self.client.inspect_raw(self.id)
        assert inspected is not None
        self.differences = readback.differences(self.config, inspected)

    def start(self) -> None:
        assert self.differences == []
        self.client.start(self.id)

    def wait(self, seconds: float = 60) -> ContainerFacts:
        """Until it has ended; everything that it left is read then."""
        end = time.monotonic() + seconds
        while True:
            facts = self.client.inspect(self.id)
            assert facts is not None
            if facts.status == "exited":
                break
            assert time.monotonic() < end, f"still {facts.status} after {seconds} s"
            time.sleep(0.02)
        self.facts = facts
        self.log = self.workspace.read_log("stdout", 0, 2**22)
        self.errors = self.workspace.read_log("stderr", 0, 2**22)
        self.marker = self.workspace.marker()
        return facts

    def whole(self) -> "Run":
        self.create()
        self.start()
        self.wait()
        return self

    def end(self) -> None:
        if self.id:
            assert self.client.remove(self.id)
        self.workspace.destroy()
        assert cgroup.remove(self.cgroup)


Maker = Callable[..., Run]


@pytest.fixture
def make(engine_client: EngineClient, engine: EngineFacts, launcher: str, state_dir: str) -> Iterator[Maker]:
    """Make a run of an image: `make(image, argv=..., inputs={...}, env=...)`; nothing is created yet."""
    runs: list[Run] = []

    def maker(
        image: str,
        *,
        inputs: dict[str, bytes] | None = None,
        resolvers: tuple[str, ...] = (),
        **changes: Any,
    ) -> Run:
        facts = engine_client.image(image)
        assert facts is not None, f"{image} is not on the engine"
        spec = made_spec(image_id=facts.id, **changes)
        place = SharedWorkspace(
            spec.attempt, site=SITE, state_dir=state_dir, launcher=launcher, disk="watchdog"
        )
        place.prepare(
            uid=spec.uid,
            disk_mib=spec.disk_mib,
            inputs=inputs or {},
            job_json=b"{}",
            resolvers=resolvers,
        )
        parent = cgroup.parent(SITE, spec.attempt, engine.cgroup_driver)
        body = config.build(spec, facts, place.mounts(), engine, cgroup_parent=parent)
        runs.append(Run(engine_client, spec, place, body))
        return runs[-1]

    yield maker
    for run in runs:
        run.end()


__all__ = ["PROGRAMS", "SITE", "Maker", "Run", "made_spec", "replace"]
