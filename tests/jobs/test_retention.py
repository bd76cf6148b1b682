"""What ends by the clock: the wait in the queue, and what is stored of a finished job."""

import hashlib
import os
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from django.core.files.storage import default_storage
from django.db import transaction

from compute_site.core import db
from compute_site.core.db import database_now
from environments import reservations
from environments.editing import retire
from jobs import retention
from jobs.logs import append_log, read_log
from jobs.models import Artifact, Job, LogChunk
from jobs.outcome import Outcome, StoredFile
from jobs.results import storage_key, store_output
from jobs.retention import expire_queued, purge, purge_expired
from jobs.settlement import settle
from tests.factories import submit, take


def stored(digest: str) -> Path:
    return Path(default_storage.path(storage_key(digest)))


def finished(user, contents: dict[str, bytes]) -> Job:
    """A job that succeeded with these outputs, stored long ago."""
    attempt = take(submit(user, inputs=[{"name": "i", "text": "secret"}]), "collecting")
    append_log(attempt, "stdout", 0, b"log")
    files = []
    for path, data in contents.items():
        digest = hashlib.sha256(data).hexdigest()
        store_output(BytesIO(data), digest, len(data))
        os.utime(stored(digest), (1, 1))
        files.append(StoredFile(path, len(data), digest))
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, result=1, artifacts=files))
    return Job.objects.get(pk=attempt.job_id)


def test_a_wait_that_is_over_expires(site, user, account):
    job, other = submit(user, max_queue_wait=60), submit(user)
    now = job.created_at
    assert expire_queued(now=now + timedelta(seconds=59)) == 0
    assert expire_queued(now=now + timedelta(seconds=60)) == 1
    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.status, job.end_reason, other.status) == ("expired", "expired_in_queue", "queued")
    assert expire_queued(now=now + timedelta(days=1)) == 0


def test_a_job_of_a_retired_environment_does_not_wait_for_ever(site, user, account):
    taken, waiting = take(submit(user), "collecting"), submit(user)
    with transaction.atomic():
        reservations.lock_host(site.host.pk)
        reservations.release_rest(taken.public_id, never_started=True)
    assert expire_queued() == 0
    retire(site.environment)
    assert expire_queued() == 1
    waiting.refresh_from_db()
    assert (waiting.status, waiting.end_detail) == ("expired", "Its environment was retired.")
    assert Job.objects.get(pk=taken.job_id).status == "collecting"
    assert expire_queued() == 0


def test_a_job_that_was_taken_does_not_expire(site, user, account):
    attempt = take(submit(user, max_queue_wait=60))
    assert expire_queued(now=database_now() + timedelta(days=1)) == 0
    assert Job.objects.get(pk=attempt.job_id).status == "preparing"


def test_expired_storage_goes_and_the_row_says_so(site, user, account):
    first, second = finished(user, {"own": b"own", "s": b"shared"}), finished(user, {"s": b"shared"})
    own, shared = (first.artifacts.get(path=path).sha256 for path in ("own", "s"))
    assert purge_expired(now=database_now()) == 0
    due = first.storage_expires_at
    assert purge_expired(now=due) == 1
    first.refresh_from_db()
    assert (first.storage_purged_at, first.result, first.status) == (due, None, "succeeded")
    assert first.spec["inputs"] == {"i": ""}
    assert not Artifact.objects.filter(job=first).exists()
    assert read_log(first.attempts.get(), "stdout") == (b"", 0)
    assert (stored(own).exists(), stored(shared).exists()) == (False, True)
    assert first.events.latest("pk").kind == "storage_purged"
    assert LogChunk.objects.count() == 1
    assert purge_expired(now=due) == 0
    assert purge(second)
    assert not stored(shared).exists()
    assert not purge(second)


def test_a_job_that_is_not_final_keeps_everything(site, user, account):
    attempt = take(submit(user), "collecting")
    append_log(attempt, "stdout", 0, b"log")
    assert not purge(attempt.job)
    assert read_log(attempt, "stdout") == (b"log", 3)


def test_a_job_that_was_queued_anew_while_it_was_looked_for_does_not_expire(site, user, account, monkeypatch):
    """Between the look and the lock it ran, failed by our fault, and waits again with all its time."""
    job = submit(user, max_queue_wait=60)
    real = db.lock

    def queued_anew(rows, **options):
        Job.objects.filter(pk=job.pk).update(queue_expires_at=job.created_at + timedelta(seconds=120))
        return real(rows, **options)

    monkeypatch.setattr(retention, "lock", queued_anew)
    assert expire_queued(now=job.created_at + timedelta(seconds=60)) == 0
    job.refresh_from_db()
    assert job.status == "queued"
