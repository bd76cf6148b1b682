import json
import re
from dataclasses import dataclass

import pytest

from tests.node.conftest import Node

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
# Runs until the file `go` is there, then tells what it sees.
PROGRAM = """
import json, os, time
while not os.path.exists("/data/outputs/go"):
    time.sleep(0.1)
disk = os.statvfs("/data")
seen = {"uid": os.getuid(), "disk": disk.f_blocks * disk.f_frsize >> 20}
json.dump({"status": "ok", "result": seen}, open("/data/outputs/result.json", "w"))
"""
DISK = 64  # MiB


@dataclass
class Job:
    """A job that runs until it is let go, and the one container it ever has."""

    node: Node
    id: str
    container: str

    def let_go(self) -> dict[str, int]:
        """Its result."""
        program = "open('/data/outputs/go', 'w')"
        self.node.docker("exec", self.container, "python3", "-c", program)
        done = self.node.eventually(
            lambda: (found := self.node.api(f"/api/v1/jobs/{self.id}"))["finished_at"] and found,
            "the job does not end",
        )
        assert done["status"] == "succeeded", done
        return dict(done["result"]["result"])


def test_a_site_by_the_commands_of_the_readme(node: Node) -> None:
    """Up, upgrade and rollback around a running job, down, shared workspaces, backup, teardown, restore."""
    node.follow("Where no registry is reachable")
    log = node.follow("Up")
    node.ready()
    text = _plain(log)
    prepared, _ = json.JSONDecoder().raw_decode(text, text.rindex("{", 0, text.index('"token"')))
    node.token = prepared["token"]
    assert prepared["admin_password"]
    assert "built from" in log
    assert "workspace archive, disk watchdog" in log
    node.compose("exec", "-T", "web", "sh", "-c", "echo kept > /data/marker")
    secrets = _secrets(node)

    job = _start(node)
    for name in ("worker", "site", "beat", "web"):
        node.eventually(lambda name=name: node.health(name) == "healthy", f"{name} is not healthy")
    node.version = 2
    _made_anew(node, "Upgrade, rollback, down, logs", 0)
    _made_anew(node, "Upgrade, rollback, down, logs", 1)
    assert job.container in node.containers(f"name=cs-{node.site_id}-")
    assert job.let_go()["disk"] > DISK  # only watched
    assert "there already" in node.compose("logs", "init")

    node.follow("Volumes")
    node.docker("rmi", f"compute-site/{node.project}:1")
    node.follow("Upgrade, rollback, down, logs", 2)
    assert node.containers(f"label=com.docker.compose.project={node.project}") == []
    node.follow("Shared workspaces")
    node.ready()
    log = node.compose("logs", "init")
    assert "built from" in log  # neither the engine nor the cache had it
    assert "workspace shared, disk loop" in log
    assert "admin_password" not in log
    _is_kept(node, job, secrets)
    job = _start(node)
    node.compose("restart", "worker")
    assert job.let_go()["disk"] <= DISK  # a file system of its own
    _is_clean(node)

    node.follow("Backup and restore", 0)
    node.follow("Backup and restore", 1)
    assert node.docker("volume", "ls", "-q", f"--filter=name={node.project}_") == ""
    node.follow("Backup and restore", 2)
    node.ready()
    _is_kept(node, job, secrets)
    assert node.readme.left_out() == []


def _plain(log: str) -> str:
    """Without colours and the container's name."""
    return re.sub(r"^init_1 *\| ?", "", re.sub(r"\x1b\[[\d;]*m", "", log), flags=re.M)


def _start(node: Node) -> Job:
    """A job that runs: its container stands beside the node's on the engine."""
    body = {
        "environment": "local/small",
        "tier": "free",
        "max_duration": 900,
        "command": ["python3", "/data/inputs/job.py"],
        "inputs": [{"name": "job.py", "text": PROGRAM}],
        "resources": {"cpu": 1, "ram": "128MiB", "disk": f"{DISK}MiB"},
    }
    job = node.api("/api/v1/jobs", body)["id"]
    node.eventually(lambda: node.api(f"/api/v1/jobs/{job}")["status"] == "running", "the job does not run")
    (container,) = node.containers(f"name=cs-{node.site_id}-")
    return Job(node, str(job), container)


def _made_anew(node: Node, heading: str, number: int) -> None:
    """After the block web and worker are other containers, of another image."""

    def seen() -> set[str]:
        found = node.compose("ps", "-q", "web", "worker").split()
        return {*found, *node.docker("inspect", "--format={{.Image}}", *found).split()}

    before = seen()
    node.follow(heading, number)
    node.ready()
    assert not before & seen()


def _secrets(node: Node) -> str:
    return node.compose("exec", "-T", "web", "sh", "-c", "sha256sum /config/*")


def _is_kept(node: Node, job: Job, secrets: str) -> None:
    """Volumes hold what they held: secrets, stored files, rows (and with them the token)."""
    assert _secrets(node) == secrets
    assert node.compose("exec", "-T", "web", "cat", "/data/marker").strip() == "kept"
    assert node.api(f"/api/v1/jobs/{job.id}")["status"] == "succeeded"


def _is_clean(node: Node) -> None:
    """No workspace is left in the folder that is shared with the host."""
    folder = node.state / node.site_id
    node.eventually(lambda: [path.name for path in folder.iterdir()] == [".templates"], f"left in {folder}")
