"""The end of an attempt: recorded once, settled once, tried again when it was our fault."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from django.db import connections, transaction

from compute_site.core.db import database_now
from compute_site.core.errors import TransitionRefused
from jobs.end_reasons import END_REASONS
from jobs.models import Artifact, Attempt, Job, JobEvent
from jobs.outcome import Outcome, StoredFile
from jobs.results import build_manifest
from jobs.settlement import abandon, record_exit, settle
from tests.factories import submit, take

FILES = [StoredFile("b/model.json", 3, "b" * 64), StoredFile("a.txt", 0, "a" * 64)]


def rows() -> list:
    tables = (Job, Attempt, JobEvent, Artifact)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def full_outcome(reason="succeeded") -> Outcome:
    manifest, digest = build_manifest(0, FILES, [{"path": "x", "reason": "symlink"}])
    return Outcome(
        reason,
        exit_code=0,
        run_seconds=1.25,
        usage={"cpu_seconds": 1.0, "stdout_cut": 7},
        result={"score": 1},
        manifest=manifest,
        manifest_sha256=digest,
        refused=[{"path": "x", "reason": "symlink"}],
        artifacts=FILES,
    )


def running(user, **fields) -> Attempt:
    return take(submit(user, **fields), "created", "starting", "running")


def test_an_exit_is_recorded_once_with_its_facts(site, user, account):
    attempt = running(user)
    started, exited = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    facts = {"exit_code": 3, "oom": False}
    assert record_exit(attempt, facts=facts, exit_code=3, started_at=started, exited_at=exited)
    attempt.refresh_from_db()
    job = Job.objects.get(pk=attempt.job_id)
    assert (attempt.status, attempt.exit_code, attempt.exit_facts, attempt.exited_at) == (
        "collecting",
        3,
        facts,
        exited,
    )
    assert (job.status, job.started_at, job.phase) == ("collecting", started, "")
    before = rows()
    assert not record_exit(attempt, facts={}, exit_code=0)
    assert rows() == before


@pytest.mark.parametrize("states", [[], ["created"], ["created", "starting"]])
def test_an_exit_may_be_seen_before_its_start_was(site, user, account, states):
    assert record_exit(take(submit(user), *states), facts={"marker": None}, exit_code=0)


def test_an_exit_with_a_stale_lease_is_dropped(site, user, account):
    attempt = running(user)
    before = rows()
    assert not record_exit(attempt, facts={}, lease=uuid.uuid4())
    assert rows() == before


def test_settling_writes_everything_once(site, user, account):
    attempt = running(user)
    record_exit(attempt, facts={}, exit_code=0, started_at=database_now())
    assert settle(attempt, attempt.lease, full_outcome())
    job = Job.objects.get(pk=attempt.job_id)
    attempt.refresh_from_db()
    assert (job.status, job.end_reason, job.exit_code, job.run_seconds) == ("succeeded", "succeeded", 0, 1.25)
    assert (job.result, job.usage["stdout_cut"], job.manifest_sha256) == (
        {"score": 1},
        7,
        full_outcome().manifest_sha256,
    )
    assert job.manifest
    assert job.storage_expires_at
    assert job.finished_at
    assert job.manifest["files"][0] == {"path": "a.txt", "size": 0, "sha256": "a" * 64}
    assert job.refused_outputs == [{"path": "x", "reason": "symlink"}]
    assert [(a.path, a.size) for a in job.artifacts.all()] == [("a.txt", 0), ("b/model.json", 3)]
    assert abs(job.storage_expires_at - job.finished_at - timedelta(days=7)) < timedelta(seconds=1)
    assert (attempt.status, attempt.end_reason) == ("settled", "succeeded")
    assert job.started_at == attempt.started_at
    before = rows()
    assert not settle(attempt, attempt.lease, full_outcome("exit_nonzero"))
    assert rows() == before


def test_a_stale_token_or_lease_settles_nothing(site, user, account):
    attempt = take(submit(user), "collecting")
    before = rows()
    assert not settle(attempt, uuid.uuid4(), full_outcome())
    stale = Attempt.objects.get(pk=attempt.pk)
    stale.token = uuid.uuid4()
    assert not settle(stale, attempt.lease, full_outcome())
    assert not abandon(stale)
    assert rows() == before
    assert settle(attempt, None, full_outcome())


def test_a_running_container_is_not_settled_as_if_it_had_ended(site, user, account):
    attempt = running(user)
    before = rows()
    assert not settle(attempt, attempt.lease, full_outcome())
    assert rows() == before


def test_success_needs_a_container_that_ran(site, user, account):
    attempt = take(submit(user))
    before = rows()
    with pytest.raises(TransitionRefused):
        settle(attempt, attempt.lease, full_outcome())
    assert rows() == before


@pytest.mark.parametrize("reason", ["image_not_found", "command_not_found", "cancelled_by_operator"])
def test_an_attempt_may_end_before_its_container_ran(site, user, account, reason):
    attempt = take(submit(user))
    assert settle(attempt, attempt.lease, Outcome(reason, detail="why"))
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.status, job.end_reason, job.end_detail) == (END_REASONS[reason].status, reason, "why")
    assert job.started_at is None


def test_a_fault_of_ours_is_tried_again_with_growing_pauses(site, user, account, settings):
    settings.RETRY_BACKOFF_SECONDS = 10
    site.environment.max_queue_wait = 60
    site.environment.save()
    job = submit(user)
    for number, pause in ((1, 10), (2, 20)):
        attempt = take(job, "created", "starting", "running")
        before = database_now()
        assert settle(attempt, attempt.lease, Outcome("engine_lost", detail="gone"))
        attempt.refresh_from_db()
        job.refresh_from_db()
        assert (attempt.status, attempt.end_reason, attempt.number) == ("failed", "engine_lost", number)
        assert (job.status, job.started_at, job.end_reason, job.attempts_made) == ("queued", None, "", number)
        assert job.not_before
        assert timedelta(0) <= job.not_before - before - timedelta(seconds=pause) < timedelta(seconds=5)
        assert job.queue_expires_at == job.not_before + timedelta(seconds=60)
        event = job.events.latest("pk")
        assert (event.kind, event.data, event.attempt_id) == ("queued", {"reason": "engine_lost"}, attempt.pk)
    attempt = take(job, "collecting")
    assert settle(attempt, attempt.lease, Outcome("engine_lost"))
    job.refresh_from_db()
    assert (job.status, job.end_reason) == ("failed", "engine_lost")


def test_outputs_of_a_failed_try_are_not_listed(site, user, account):
    attempt = take(submit(user), "collecting")
    assert settle(attempt, attempt.lease, full_outcome("storage_failed"))
    assert not Artifact.objects.exists()
    assert Job.objects.get(pk=attempt.job_id).status == "queued"


def test_abandoned_starts_end_as_a_worker_lost_too_often(site, user, account):
    job = submit(user)
    for _ in range(3):
        attempt = take(job, "created", "starting")
        assert abandon(attempt, detail="no answer")
        attempt.refresh_from_db()
        job.refresh_from_db()
        assert (attempt.status, attempt.end_reason) == ("abandoned", "start_lost")
        assert not abandon(attempt)
    assert (job.status, job.end_reason) == ("failed", "worker_lost_too_often")


def test_a_job_that_is_collecting_is_not_abandoned(site, user, account):
    attempt = take(submit(user), "collecting")
    before = rows()
    assert not abandon(attempt)
    assert rows() == before


def test_every_reason_ends_an_attempt_that_collects(site, user, account):
    attempt = take(submit(user), "collecting")
    for reason, entry in END_REASONS.items():
        with transaction.atomic():
            if entry.status == "expired":
                with pytest.raises(TransitionRefused), transaction.atomic():
                    settle(attempt, attempt.lease, Outcome(reason))
                continue
            assert settle(attempt, attempt.lease, Outcome(reason))
            expected = "queued" if entry.retryable else entry.status
            assert Job.objects.get(pk=attempt.job_id).status == expected, reason
            transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_many_settlements_at_once_make_one(site, user, account):
    attempt = take(submit(user), "collecting")
    barrier = Barrier(6)

    def settle_now(number: int) -> bool:
        try:
            barrier.wait()
            return settle(attempt, attempt.lease, full_outcome())
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(settle_now, range(6))) == [False] * 5 + [True]
    assert Artifact.objects.count() == 2
    assert JobEvent.objects.filter(kind="succeeded").count() == 1
