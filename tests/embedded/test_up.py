"""The whole of `./run up` with real services, over two small processes in the place of the site's."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_site.embedded.cgroups import Cgroup
from compute_site.embedded.children import with_descendants
from compute_site.embedded.lock import FolderLock
from compute_site.embedded.mounts import mounted_below
from compute_site.embedded.paths import Places
from compute_site.embedded.ports import free_port
from tests.embedded.waiting import alive, eventually, gone

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("as_root")]

SITE = """
import sys
from pathlib import Path
from compute_site.embedded import up
from compute_site.embedded.backing import Backing
from compute_site.embedded.processes import Process

web = "import http.server, sys; http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')"
worker = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (print('drained', flush=True), sys.exit())); open(sys.argv[1], 'w'); time.sleep(600)"
up.RUN = Path(sys.argv[1])
up.preparations = lambda: []
up.site = lambda port, ready: [
    Process("web", (sys.executable, "-c", web, str(port)), stop_rank=1, ready=ready),
    Process("worker", (sys.executable, "-c", worker, str(up.RUN / "up")), ready=(up.RUN / "up").exists),
]
Backing.prepare_sandbox = lambda self: None
up.Backing = lambda places: Backing(places, durable=False)
sys.exit(up.up([]))
"""
GIVEN = (
    "DATABASE_URL",
    "REDIS_URL",
    "DOCKER_HOST",
    "SECRET_KEY",
    "STATE_DIR",
    "DATA_DIR",
    "SITE_ID",
    "LAUNCHER",
)


@pytest.fixture
def site(places: Places) -> Iterator[subprocess.Popen[bytes]]:
    environment = {key: value for key, value in os.environ.items() if key not in GIVEN}
    environment["PORT"] = str(free_port())
    with (places.root / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SITE, str(places.root)], env=environment, stdout=output, stderr=output
        )
    try:
        assert eventually(lambda: "ready:" in shown(places), 60), shown(places)
        yield process
    finally:
        process.kill()
        process.wait()
        FolderLock(places.root).take()  # When the keeper, too, has ended.


def shown(places: Places) -> str:
    return (places.root / "output").read_text(errors="replace")


def family(process: subprocess.Popen[bytes], places: Places) -> set[int]:
    """The process, its children, theirs, and all in the engine's cgroup."""
    return with_descendants({process.pid} | Cgroup(f"cs-{places.tag}").processes())


def assert_nothing_left(members: set[int], places: Places) -> None:
    assert len(members) > 8, "PostgreSQL, Valkey, dockerd, containerd, the keeper, web and worker at least"
    assert all(gone(pid) for pid in members), [pid for pid in members if alive(pid)]
    assert mounted_below(places.root) == []
    assert not Cgroup(f"cs-{places.tag}").accounting.exists()


def test_down_stops_all_in_order_from_elsewhere(site: subprocess.Popen[bytes], places: Places):
    members = family(site, places)
    code = f"from pathlib import Path; from compute_site.embedded import up; up.RUN = Path({str(places.root)!r}); up.down([])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "has stopped" in told.stdout
    assert site.wait(1) == 0
    assert_nothing_left(members, places)
    lines = [
        line.split("] ")[-1] for line in shown(places).splitlines() if "stopping" in line or "drained" in line
    ]
    order = ["stopping", "worker", "worker  | drained", "web", "Valkey", "PostgreSQL", "Docker engine"]
    assert [line.split(":")[0] for line in lines] == order


def test_a_kill_9_leaves_nothing(site: subprocess.Popen[bytes], places: Places):
    members = family(site, places)
    site.kill()
    site.wait()
    lock = FolderLock(places.root)
    lock.take()  # A next start waits until the keeper has cleared up.
    lock.release()
    assert_nothing_left(members, places)


def test_one_that_ends_by_itself_ends_all_with_a_failure(site: subprocess.Popen[bytes], places: Places):
    members = family(site, places)
    (web,) = [
        pid
        for pid in members
        if b"http.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and pid != site.pid
        and _parent(pid) == site.pid
    ]
    os.kill(web, signal.SIGKILL)
    assert site.wait(30) == 1
    assert "web ended by itself with code -9" in shown(places)
    assert_nothing_left(members, places)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
