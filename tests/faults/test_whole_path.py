"""One job from REST to its result, and many jobs against one place."""

import hashlib
import signal
import subprocess
import sys
from typing import Any

from django.db import connection

from environments.models import Reservation, ReservationStatus
from jobs.models import Job
from tests.faults.observing import Cores, Starts
from tests.faults.processes import REPOSITORY
from tests.faults.site import FaultSite
from workers.models import Worker

PROGRAM = """
import json, os, sys
print("caf\\u00e9", flush=True)
print("to stderr", file=sys.stderr)
asked = open(os.environ["JOB_INPUTS"] + "/question").read()
os.makedirs("/data/outputs/deep/er")
open("/data/outputs/deep/er/model.bin", "wb").write(bytes(range(256)) * 100)
json.dump({"answer": asked.upper()}, open("/data/outputs/result.json", "w"))
"""


def test_one_job_from_submit_to_result(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    job = site.submit(
        place, "python3", "-c", PROGRAM, image=None, inputs=[{"name": "question", "text": "why"}]
    )
    site.wait_clean(job)

    found = site.detail(job)
    assert (found["status"], found["end_reason"], found["exit_code"]) == ("succeeded", "succeeded", 0), found
    assert found["result"] == {"answer": "WHY"}
    assert found["terms"]["prices"] == {"cpu": "1.000000000000000000"}
    assert found["resources"] == {"cpu": 1, "ram": 64, "disk": 64}
    assert found["usage"]["cpu_seconds"] > 0
    assert found["usage"]["peak_memory_bytes"] > 1_000_000
    assert 0 < found["run_seconds"] < 30
    assert found["refused_outputs"] == []
    assert site.log(job).content == "café\n".encode()
    errors = site.log(job, "stderr")
    assert (errors.content, errors["X-Log-Complete"]) == (b"to stderr\n", "true")
    assert site.events(job) == ["queued", "preparing", "running", "collecting", "succeeded"]

    content = bytes(range(256)) * 100
    artifacts = {row["path"]: row for row in site.api.get(f"/api/v1/jobs/{job.public_id}/artifacts").json()}
    assert set(artifacts) == {"result.json", "deep/er/model.bin"}
    assert artifacts["deep/er/model.bin"]["sha256"] == hashlib.sha256(content).hexdigest()
    answer: Any = site.api.get(f"/api/v1/jobs/{job.public_id}/artifacts/deep/er/model.bin")
    assert b"".join(answer.streaming_content) == content
    assert {row["path"] for row in found["manifest"]["files"]} == set(artifacts)
    reservation = Reservation.objects.get(holder=site.attempt(job).public_id)
    assert reservation.status == ReservationStatus.RELEASED


LARGEST_SUMS = """
    WITH edges AS (
        SELECT resource_id, r.created_at AS at, a.amount FROM environments_reservedamount a
          JOIN environments_reservation r ON r.id = a.reservation_id WHERE r.environment_id = %(environment)s
        UNION ALL
        SELECT a.resource_id, a.released_at, -a.amount FROM environments_reservedamount a
          JOIN environments_reservation r ON r.id = a.reservation_id
         WHERE r.environment_id = %(environment)s AND a.released_at IS NOT NULL)
    SELECT r.slug, max(used), r.total FROM (
        SELECT resource_id, sum(amount) OVER (PARTITION BY resource_id ORDER BY at, amount) AS used FROM edges) sums
      JOIN environments_resource r ON r.id = sums.resource_id GROUP BY r.slug, r.total
"""


def test_many_jobs_for_one_place_run_one_by_one_in_order(site: FaultSite) -> None:
    place = site.place(cpu=1, ram=128, disk=256)
    with Cores(place.engine.endpoint) as cores, Starts(place.engine.endpoint) as starts:
        jobs = [site.shell(place, "sleep 0.05") for _ in range(50)]
        assert Job.objects.filter(environment=place.environment, status="queued").count() == 50
        site.worker(place)
        site.wait_clean(*jobs, seconds=150)
    assert cores.looks > 50
    assert (cores.most, cores.shared) == (1, [])
    assert {starts.of(job.public_id) == [1] for job in jobs} == {True}
    rows = list(Job.objects.filter(environment=place.environment).order_by("started_at"))
    assert [row.pk for row in rows] == [job.pk for job in jobs]
    assert {row.status for row in rows} == {"succeeded"}
    with connection.cursor() as cursor:
        cursor.execute(LARGEST_SUMS, {"environment": place.environment.pk})
        for slug, most, total in cursor.fetchall():
            assert 0 < most <= total, slug


def test_containers_that_run_at_once_never_share_a_core(site: FaultSite) -> None:
    place = site.place(cpu=2)
    with Cores(place.engine.endpoint, every=0.02) as cores:
        jobs = [site.shell(place, "sleep 0.2") for _ in range(12)]
        site.worker(place)
        site.wait_clean(*jobs)
    assert (cores.most, cores.shared) == (2, [])


def test_the_worker_s_command_runs_jobs_and_ends_in_good_order_by_sigterm(site: FaultSite) -> None:
    place = site.place()
    command = [sys.executable, "manage.py", "engine_worker", place.engine.name, "--threads", "2"]
    environment = {**site.environment}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        done = site.shell(place, "true")
        site.wait_clean(done)
        running = site.shell(place, "sleep 2; echo went on")
        site.wait_status(running, "running")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    (worker,) = Worker.objects.filter(engine=place.engine)
    assert (worker.status, worker.pid) == ("stopped", process.pid)
    assert site.wait_status(running, "running", seconds=1)
    site.worker(place)
    site.wait_clean(running)
    assert site.detail(running)["end_reason"] == "succeeded"
    assert site.log(running).content == b"went on\n"
