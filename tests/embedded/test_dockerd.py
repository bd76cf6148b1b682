import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_site.embedded import dockerd, packages
from compute_site.embedded.bridge import bridge_exists
from compute_site.embedded.cgroups import Cgroup
from compute_site.embedded.dockerd import PrivateEngine
from compute_site.embedded.mounts import mounted_below
from compute_site.embedded.paths import Places
from tests.embedded.waiting import alive, eventually, gone

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("as_root")]


class Docker:
    """The unpacked or installed command line client, against one engine."""

    def __init__(self, engine: PrivateEngine) -> None:
        self._prefix = [dockerd.program("docker"), "--host", engine.docker_host]

    def __call__(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._prefix, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root filesystem with one static program."""
    folder = tmp_path_factory.mktemp("image")
    packages.unpack(["busybox-static"], folder / "root", closure="none")
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        (program,) = [
            path for path in (folder / "root").rglob("busybox") if os.access(path, os.X_OK) and path.is_file()
        ]
        tar.add(program, "bin/busybox")
    return archive


@pytest.fixture
def engine(places: Places) -> Iterator[PrivateEngine]:
    dockerd.provide_programs()
    engine = PrivateEngine(places.root / "docker", places.tag, sockets=places.sockets, site=places.tag)
    engine.start()
    yield engine
    engine.stop()


def run_sleeper(engine: PrivateEngine, image: Path, *options: str) -> int:
    """Start a container that sleeps; returns its process id on the machine."""
    docker = Docker(engine)
    docker("import", str(image), "sleeper")
    run = ("run", "--detach", "--name", "one", "--network", "none", *options)
    docker(*run, "sleeper", "/bin/busybox", "sleep", "600")
    return int(docker("inspect", "--format", "{{.State.Pid}}", "one"))


def assert_no_trace(engine: PrivateEngine) -> None:
    assert mounted_below(engine.folder) == []
    assert mounted_below(engine.run_folder) == []
    assert engine.cgroups.processes() == set()
    assert not engine.cgroup.exists()
    assert not engine.run_folder.exists()
    assert not bridge_exists(engine.bridge)


def test_stop_leaves_no_trace_not_even_of_a_running_container(engine: PrivateEngine, image: Path):
    pid = run_sleeper(engine, image)
    assert pid in engine.cgroups.processes()
    assert engine.cgroups.cpu_ms() > 0
    engine.stop()
    assert gone(pid)
    assert_no_trace(engine)
    engine.stop()  # Safe to repeat.

    engine.start()
    assert Docker(engine)("ps", "--all", "--format", "{{.Names}} {{.State}}") == "one exited"


def test_stop_ends_a_job_in_a_cgroup_of_its_site(engine: PrivateEngine, image: Path):
    site = Cgroup(f"compute-site-{engine.site}")
    pid = run_sleeper(engine, image, "--cgroup-parent", f"/{site.name}/attempt")
    assert pid in site.processes() - engine.cgroups.processes()
    engine.stop()
    assert gone(pid)
    assert not site.accounting.exists()
    assert_no_trace(engine)


def test_containers_survive_a_killed_daemon_and_are_adopted(engine: PrivateEngine, image: Path):
    pid = run_sleeper(engine, image)
    daemon = engine.pid
    engine.kill()
    assert gone(daemon)
    assert alive(pid)
    engine.start(fresh=False)
    assert (
        Docker(engine)("inspect", "--format", "{{.State.Pid}} {{.State.Status}}", "one") == f"{pid} running"
    )
    engine.restart()
    assert Docker(engine)("inspect", "--format", "{{.State.Pid}}", "one") == str(pid)


def test_two_engines_side_by_side_know_nothing_of_each_other(
    engine: PrivateEngine, places: Places, image: Path
):
    pid = run_sleeper(engine, image)
    other = PrivateEngine(places.root / "other", f"{places.tag}b", sockets=places.sockets)
    other.start()
    try:
        assert Docker(other)("ps", "--all", "--quiet") == ""
        other.stop()
        assert_no_trace(other)
        assert alive(pid)
        assert engine.ready()
    finally:
        other.stop()


DIES = """
import os, sys, time
from pathlib import Path
from compute_site.embedded.dockerd import PrivateEngine
from compute_site.embedded.keeper import Keeper
engine = PrivateEngine(Path(sys.argv[1]), sys.argv[2], sockets=Path(sys.argv[3]))
keeper = Keeper()
keeper.watch_engine(engine)
engine.start()
print("started", flush=True)
time.sleep(600)
"""


def test_a_kill_9_of_the_owner_leaves_no_trace(places: Places, image: Path):
    dockerd.provide_programs()
    engine = PrivateEngine(places.root / "docker", places.tag, sockets=places.sockets)
    elsewhere = Cgroup(f"cst-{places.tag}")
    arguments = [str(engine.folder), engine.name, str(places.sockets)]
    owner = subprocess.Popen([sys.executable, "-c", DIES, *arguments], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        with owner.stdout:
            assert owner.stdout.readline() == b"started\n"
        # As a container that somebody gave a parent of which we know nothing.
        pid = run_sleeper(engine, image, "--cgroup-parent", f"/{elsewhere.name}")
        assert pid in elsewhere.processes() - engine.cgroups.processes()
        owner.send_signal(signal.SIGKILL)
        assert gone(pid)
        assert eventually(lambda: not engine.run_folder.exists(), 20)
        assert_no_trace(engine)
    finally:
        elsewhere.remove()
        owner.kill()
        owner.wait()
        engine.clear()
