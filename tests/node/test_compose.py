import json
import re

import pytest

from tests.node.conftest import NODE, Node

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


def test_a_site_from_the_compose_file_runs_jobs_as_siblings_and_survives_upgrade_and_down(node: Node) -> None:
    node.up()
    log = node.compose("logs", "--no-color", "init")
    log = re.sub(r"^init_1 *\| ?", "", log, flags=re.M)
    prepared, _ = json.JSONDecoder().raw_decode(log, log.index("{"))
    node.token = prepared["token"]
    assert prepared["admin_password"]

    first = _run_job(node, "first", "siblings")
    secrets = _config(node)
    node.compose("exec", "-T", "web", "sh", "-c", "echo kept > /data/marker")

    # Upgrade: another image name, every container made anew.
    node._docker("tag", f"{NODE}:1", f"{NODE}:2")
    before = set(node.compose("ps", "-q", "web", "worker").split())
    node.up(f"{NODE}:2")
    assert not before & set(node.compose("ps", "-q", "web", "worker").split())
    _is_kept(node, first, secrets)

    node.compose("down", "--timeout", "10")
    assert node.containers(f"label=com.docker.compose.project={node.project}") == []
    node.up(f"{NODE}:2")
    _is_kept(node, first, secrets)
    assert "admin_password" not in node.compose("logs", "--no-color", "init")
    _run_job(node, "second", "again")


def _run_job(node: Node, key: str, word: str) -> str:
    """Run a job through the API; while it runs its container stands beside the node's on the engine."""
    program = (
        "import json, os, time\ntime.sleep(2)\n"
        f"json.dump({{'status': 'ok', 'result': {{'word': {word!r}, 'uid': os.getuid()}}}},"
        " open('/data/outputs/result.json', 'w'))\n"
    )
    body = {
        "environment": "local/small",
        "tier": "free",
        "max_duration": 60,
        "command": ["python3", "/data/inputs/job.py"],
        "inputs": [{"name": "job.py", "text": program}],
        "resources": {"cpu": 1, "ram": "128MiB", "disk": "64MiB"},
    }
    job = node.api("/api/v1/jobs", body)["id"]
    node.eventually(lambda: node.containers(f"name=cs-{node.site_id}-"), "no sibling container was seen")
    done = node.eventually(
        lambda: (found := node.api(f"/api/v1/jobs/{job}"))["finished_at"] and found,
        "the job does not end",
    )
    assert done["status"] == "succeeded", done
    assert done["result"]["result"]["word"] == word, done
    return str(job)


def _config(node: Node) -> str:
    return node.compose("exec", "-T", "web", "sh", "-c", "sha256sum /config/*")


def _is_kept(node: Node, job: str, secrets: str) -> None:
    """Volumes hold what they held: secrets, stored files, rows (and with them the token)."""
    assert _config(node) == secrets
    assert node.compose("exec", "-T", "web", "cat", "/data/marker").strip() == "kept"
    assert node.api(f"/api/v1/jobs/{job}")["status"] == "succeeded"
