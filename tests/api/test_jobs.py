"""Submitting, reading and cancelling jobs over REST."""

import hashlib
from datetime import timedelta
from io import BytesIO
from urllib.parse import quote

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient
from django.utils import timezone

from compute_site.core.db import database_now
from jobs.cancellation import cancel
from jobs.logs import append_log
from jobs.models import Job
from jobs.outcome import Outcome, StoredFile
from jobs.results import build_manifest, store_output
from jobs.settlement import record_exit, settle
from tests.factories import submit, take

GOOD = {"environment": "local/main", "command": ["true"], "inputs": [{"name": "a", "text": "héllo"}]}


def finish(user, files: dict[str, bytes]) -> Job:
    """A job that ran, wrote these files and said something."""
    attempt = take(submit(user), "created", "starting", "running")
    append_log(attempt, "stdout", 0, b"\xff\x00 some bytes\n")
    record_exit(attempt, facts={"marker": {"stdout_cut": 5, "stderr_cut": 0}}, exit_code=0)
    stored = [StoredFile(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()]
    for file, data in zip(stored, files.values(), strict=True):
        store_output(BytesIO(data), file.sha256, file.size)
    manifest, digest = build_manifest(0, stored)
    outcome = Outcome(
        "succeeded",
        exit_code=0,
        result={"score": 0.5},
        manifest=manifest,
        manifest_sha256=digest,
        artifacts=stored,
    )
    assert settle(attempt, attempt.lease, outcome)
    return Job.objects.get(pk=attempt.job_id)


def test_submit_read_cancel(site, client_api, account):
    response = client_api.post("/api/v1/jobs", GOOD)
    assert response.status_code == 201
    job = response.json()
    assert response["Location"] == f"/api/v1/jobs/{job['id']}"
    assert (job["status"], job["account"], job["environment"]["name"]) == (
        "queued",
        str(account.public_id),
        "local/main",
    )
    assert job["resources"] == {"cpu": 1, "ram": 64, "disk": 64}
    assert job["pending_reason"] is None
    detail = client_api.get(response["Location"]).json()
    assert detail["pending_reason"] == "first in line; about to start"
    assert detail["spec"]["inputs"] == [{"name": "a", "size": 6}]
    assert (detail["end_message"], detail["attempts"], detail["terms"]["tier"]) == (None, [], "paid")
    for _ in range(2):
        cancelled = client_api.post(f"{response['Location']}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"], cancelled.json()["end_reason"]) == (
            200,
            "cancelled",
            "cancelled",
        )
    assert cancelled.json()["pending_reason"] is None


def test_a_wrong_clock_of_ours_does_not_make_a_worker_dead(site, client_api, monkeypatch):
    site.engine.worker_seen_at = database_now()
    site.engine.save()
    monkeypatch.setattr(timezone, "now", lambda: database_now() + timedelta(hours=1))
    for _ in range(2):  # admitted, then replayed
        response = client_api.post("/api/v1/jobs", GOOD, headers={"Idempotency-Key": "k"})
        assert response.json()["pending_reason"] is None
    site.engine.worker_seen_at = database_now() - timedelta(hours=1)
    site.engine.save()
    response = client_api.post("/api/v1/jobs", GOOD, headers={"Idempotency-Key": "k"})
    assert response.json()["pending_reason"] == "no live worker for engine local"


def test_an_engine_that_is_down_queues_the_job_and_says_so(site, client_api):
    site.engine.worker_seen_at = None
    site.engine.save()
    response = client_api.post("/api/v1/jobs", GOOD)
    assert (response.status_code, response.json()["pending_reason"]) == (
        201,
        "no live worker for engine local",
    )
    assert "no live worker" in client_api.get(response["Location"]).json()["pending_reason"]


def test_the_same_key_answers_with_the_same_job(site, client_api):
    first = client_api.post("/api/v1/jobs", GOOD, headers={"Idempotency-Key": "k!~"})
    again = client_api.post("/api/v1/jobs", dict(reversed(GOOD.items())), headers={"Idempotency-Key": "k!~"})
    assert (again.status_code, again.json()["id"], again["Location"]) == (
        201,
        first.json()["id"],
        first["Location"],
    )
    assert (again["Idempotent-Replayed"], "Idempotent-Replayed" in first) == ("true", False)
    other = client_api.post("/api/v1/jobs", {**GOOD, "tier": "free"}, headers={"Idempotency-Key": "k!~"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert Job.objects.count() == 1


def test_refusals_keep_their_status_and_code(site, client_api, settings):
    settings.MAX_QUEUED_JOBS_PER_ACCOUNT = 0
    assert client_api.post("/api/v1/jobs", GOOD).status_code == 429
    settings.MAX_QUEUED_JOBS_PER_ACCOUNT = 9
    site.environment.state = "draining"
    site.environment.save()
    response = client_api.post("/api/v1/jobs", GOOD)
    assert (response.status_code, response.json()["code"]) == (403, "draining")
    assert response.json()["errors"][0]["pointer"] == "/environment"
    assert Job.objects.count() == 0


def test_lists_come_in_pages_and_are_filtered(site, user, client_api, django_assert_max_num_queries):
    jobs = [submit(user) for _ in range(5)]
    client_api.post(f"/api/v1/jobs/{jobs[0].public_id}/cancel")
    with django_assert_max_num_queries(2):
        page = client_api.get("/api/v1/jobs?limit=2").json()
    seen = [job["id"] for job in page["results"]]
    while page["next"]:
        submit(user)  # what comes in front does not move what follows
        page = client_api.get(page["next"]).json()
        seen += [job["id"] for job in page["results"]]
    assert seen == [str(job.public_id) for job in reversed(jobs)]
    ordered = client_api.get("/api/v1/jobs?ordering=created&limit=1").json()["results"]
    assert ordered[0]["id"] == str(jobs[0].public_id)
    cancelled = client_api.get("/api/v1/jobs?status=cancelled").json()["results"]
    assert [job["id"] for job in cancelled] == [str(jobs[0].public_id)]
    assert len(client_api.get("/api/v1/jobs?status=cancelled&status=queued&limit=200").json()["results"]) > 5
    for name, count in (
        ("local/main", True),
        (str(site.environment.public_id), True),
        ("local/x", False),
        ("x", False),
    ):
        assert bool(client_api.get(f"/api/v1/jobs?environment={name}").json()["results"]) == count


def test_log_bytes_are_exact(site, user, client_api):
    job = finish(user, {})
    url = f"/api/v1/jobs/{job.public_id}/logs"
    response = client_api.get(url)
    assert response.content == b"\xff\x00 some bytes\n"
    assert response["Content-Type"] == "application/octet-stream"
    assert (response["X-Next-Offset"], response["X-Log-Bytes-Cut"], response["X-Log-Complete"]) == (
        "14",
        "5",
        "true",
    )
    part = client_api.get(url, {"after": 2, "limit": 5})
    assert (part.content, part["X-Next-Offset"], part["X-Log-Complete"]) == (b" some", "7", "false")
    assert client_api.get(url, {"stream": "stderr", "attempt": 1}).content == b""
    assert client_api.get(url, {"attempt": 2}).status_code == 404
    queued = client_api.get(f"/api/v1/jobs/{submit(user).public_id}/logs", {"after": 3})
    assert (queued.content, queued["X-Next-Offset"], queued["X-Log-Complete"]) == (b"", "3", "false")


def test_a_log_is_complete_when_nothing_can_follow(site, user, client_api):
    def complete(job: Job, **query: int) -> str:
        return client_api.get(f"/api/v1/jobs/{job.public_id}/logs", query)["X-Log-Complete"]

    queued = submit(user)
    assert complete(queued) == "false"
    assert complete(cancel(queued, "ada")) == "true"
    attempt = take(submit(user), "collecting")
    assert complete(attempt.job) == "false"
    settle(attempt, attempt.lease, Outcome("engine_lost"))
    assert (complete(attempt.job), complete(attempt.job, attempt=1)) == ("false", "true")


@pytest.mark.parametrize(
    "query",
    [
        "stream=x",
        "after=-1",
        "after=x",
        "after=1.5",
        "after=99999999999999999999",
        "limit=0",
        "limit=x",
        "limit=99999999",
        "attempt=0",
        "after=²",
    ],
)
def test_log_queries_that_are_wrong(site, user, client_api, query):
    response = client_api.get(f"/api/v1/jobs/{submit(user).public_id}/logs?{query}")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (
        400,
        f"/{query.partition('=')[0]}",
    )


def test_artifacts_are_listed_and_downloaded(site, user, client_api):
    files = {"model/ä b.json": b'{"w": 1}', "report.html": b"<script>alert(1)</script>", "../x": b"odd"}
    job = finish(user, files)
    url = f"/api/v1/jobs/{job.public_id}/artifacts"
    listing = client_api.get(url).json()
    assert {entry["path"]: entry["size"] for entry in listing} == {
        path: len(data) for path, data in files.items()
    }
    for path in ("model/ä b.json", "report.html"):
        response = client_api.get(f"{url}/{quote(path)}")
        assert b"".join(response.streaming_content) == files[path]
        assert response["Content-Disposition"].startswith("attachment; filename*=UTF-8''")
        assert (response["X-Content-Type-Options"], response["Content-Type"]) == (
            "nosniff",
            "application/octet-stream",
        )
        assert response["Content-Length"] == str(len(files[path]))
    for path in ("model", "nothing", "..%2f..%2fetc%2fpasswd", "model/", "%ff"):
        assert client_api.get(f"{url}/{path}").status_code == 404
    detail = client_api.get(f"/api/v1/jobs/{job.public_id}").json()
    assert (detail["result"], detail["manifest_sha256"]) == ({"score": 0.5}, job.manifest_sha256)
    assert (detail["attempts"][0]["status"], detail["end_message"]) == (
        "settled",
        "The program ended with exit code 0.",
    )


def test_an_asynchronous_server_streams_too(site, user, client_api):
    job = finish(user, {"large": bytes(3 << 20)})
    url = f"/api/v1/jobs/{job.public_id}/artifacts/large"
    headers = {"Authorization": client_api._credentials["HTTP_AUTHORIZATION"]}

    async def sizes() -> list[int]:
        response = await AsyncClient().get(url, headers=headers)
        return [len(block) async for block in response]  # type: ignore[attr-defined]

    found = async_to_sync(sizes)()
    assert (sum(found), max(found)) == (3 << 20, 256 * 1024)


def test_events_tell_the_history(site, user, client_api):
    job = finish(user, {})
    events = client_api.get(f"/api/v1/jobs/{job.public_id}/events").json()["results"]
    assert [event["kind"] for event in events] == [
        "queued",
        "preparing",
        "running",
        "collecting",
        "succeeded",
    ]
    assert [event["attempt"] for event in events] == [None, None, None, 1, 1]


def test_environments_are_offered_with_what_is_free(site, user, client_api, django_assert_max_num_queries):
    take(submit(user, resources={"cpu": 3}))
    submit(user)
    with django_assert_max_num_queries(9):
        listing = client_api.get("/api/v1/environments").json()
    offer = listing[0]
    assert (offer["name"], offer["queued"], offer["architecture"]) == ("local/main", 1, "amd64")
    assert (offer["estimated_wait"], offer["free_tier"]["estimated_wait"], offer["labels"]) == (
        3600,
        3600,
        {},
    )
    assert offer["resources"]["cpu"] == {"kind": "cpu", "total": 4, "free": 1, "min": 0, "max": 4}
    assert offer["free_tier"]["resources"]["cpu"]["free"] == 1
    assert offer["free_tier"]["max_jobs"] == 2
    assert offer["prices"] == [{"currency": "credit", "prices": {"cpu": "1.000000000000000000"}}]
    assert client_api.get(f"/api/v1/environments/{offer['id']}").json() == offer
    site.environment.state = "retired"
    site.environment.save()
    assert client_api.get("/api/v1/environments").json() == []
    assert client_api.get(f"/api/v1/environments/{offer['id']}").status_code == 404
