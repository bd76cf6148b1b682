"""How jobs end: each end told by its own reason, on the real engine."""

from typing import Any

import pytest

from tests import images
from tests.faults.site import FaultSite, Place
from workers.engines import client_for

# argv, fields of the request, and what the client reads then. Shell where it will do: Python costs more to start.
HOG = "x = bytearray(200 << 20); print(len(x))"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', '{hog}']); sys.exit({code})"
ENDS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "exit code 3": (
        ("sh", "-c", "echo partial; echo kept > /data/outputs/file; exit 3"),
        {},
        {"status": "failed", "end_reason": "exit_nonzero", "exit_code": 3},
    ),
    "command not found": (
        ("/no/such/program",),
        {},
        {"status": "failed", "end_reason": "command_not_found", "exit_code": 127},
    ),
    "image not found": (
        ("true",),
        {"image": "registry.invalid:5000/nothing:1"},
        {"status": "failed", "end_reason": "image_not_found", "exit_code": None},
    ),
    "out of memory": (
        ("python3", "-c", HOG),
        {},
        {"status": "failed", "end_reason": "out_of_memory", "exit_code": 137},
    ),
    "a child out of memory, exit 0": (
        ("python3", "-c", CHILD.format(hog=HOG, code=0)),
        {},
        {"status": "succeeded", "end_reason": "succeeded", "exit_code": 0},
    ),
    "a child out of memory, exit 1": (
        ("python3", "-c", CHILD.format(hog=HOG, code=1)),
        {},
        {"status": "failed", "end_reason": "exit_nonzero", "exit_code": 1},
    ),
    "kills itself": (
        ("sh", "-c", "kill -9 $$"),
        {},
        {"status": "failed", "end_reason": "killed", "exit_code": 137},
    ),
    "time limit, silent": (
        ("sleep", "60"),
        {"max_duration": 1},
        {"status": "failed", "end_reason": "time_limit"},
    ),
    "time limit, printing": (
        ("sh", "-c", "while :; do echo y; done"),
        {"max_duration": 1},
        {"status": "failed", "end_reason": "time_limit"},
    ),
    "time limit, ignores TERM": (
        ("sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done"),
        {"max_duration": 1},
        {"status": "failed", "end_reason": "time_limit"},
    ),
    "more than its disk": (
        (
            "sh",
            "-c",
            "dd if=/dev/zero of=/data/outputs/big bs=1M count=500 2>/dev/null; rm /data/outputs/big; exit 4",
        ),
        {},
        {"status": "failed", "end_reason": "exit_nonzero", "exit_code": 4},
    ),
    "declared output missing": (
        ("sh", "-c", "echo x > /data/outputs/other"),
        {"outputs": ["wanted"]},
        {"status": "failed", "end_reason": "output_missing", "exit_code": 0},
    ),
}
KILLS = {"out of memory", "a child out of memory, exit 0", "a child out of memory, exit 1"}


@pytest.fixture(scope="module")
def ended(fault_site: FaultSite) -> dict[str, dict[str, Any]]:
    """All these jobs, run beside each other on one engine, as the client reads them."""
    place = fault_site.place(cpu=2, ram=2048)
    worker = fault_site.worker(place)
    jobs = {name: fault_site.submit(place, *argv, **fields) for name, (argv, fields, _) in ENDS.items()}
    fault_site.wait_clean(*jobs.values(), seconds=120)
    found = {name: fault_site.detail(job) for name, job in jobs.items()}
    worker.kill()
    return found


@pytest.mark.parametrize("name", ENDS)
def test_each_end_has_its_reason(ended: dict[str, dict[str, Any]], name: str) -> None:
    found, expected = ended[name], ENDS[name][2]
    assert {key: found[key] for key in expected} == expected, (found["end_detail"], found["usage"])
    assert (found["usage"].get("memory_kills", 0) > 0) == (name in KILLS)
    assert found["attempts_made"] == 1
    if found["end_reason"] == "time_limit":
        assert 1 <= found["run_seconds"] < 15


def test_a_failed_job_keeps_its_log_and_its_partial_outputs(
    site: FaultSite, ended: dict[str, dict[str, Any]]
) -> None:
    url = f"/api/v1/jobs/{ended['exit code 3']['id']}"
    assert site.api.get(f"{url}/logs").content == b"partial\n"
    assert [row["path"] for row in site.api.get(f"{url}/artifacts").json()] == ["file"]


def test_an_image_for_another_architecture_is_refused_before_anything_runs(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    job = site.submit(place, "true", image=images.other_architecture(site.docker_host))
    site.wait_clean(job)
    found = site.detail(job)
    assert (found["end_reason"], found["started_at"]) == ("image_refused", None)
    assert "s390x" in found["end_detail"]


def test_nothing_of_a_nasty_image_is_in_force(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    image = images.hostile(site.docker_host, {"compute-site.site": "another", "compute-site.nonce": "forged"})
    script = "id -u; id -g; echo $LD_PRELOAD $NVIDIA_VISIBLE_DEVICES; echo x > /var/own/x; echo x > /srv/own/deep/x"
    before = volumes(place)
    job = site.submit(place, entrypoint=["sh", "-c", script], image=image)
    site.wait_clean(job)
    assert site.detail(job)["end_reason"] == "exit_nonzero"  # its last command could not write
    uid = site.attempt(job).uid
    assert site.log(job).content == f"{uid}\n{uid}\nvoid\n".encode()
    assert site.log(job, "stderr").content.count(b"Read-only file system") == 2
    assert volumes(place) == before


def volumes(place: Place) -> set[str]:
    client = client_for(place.engine)
    found: Any = client.get("/volumes")
    client.close()
    return {volume["Name"] for volume in found["Volumes"] or ()}
