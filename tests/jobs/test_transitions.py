"""Every pair of states of a job and of an attempt, walked: what is in the table works, what is not changes nothing."""

import itertools
import uuid

import pytest
from django.db import IntegrityError, transaction
from django.db.models import Q

from compute_site.core.db import database_now
from jobs.models import FINAL, Attempt, AttemptStatus, Job, JobStatus
from jobs.models import attempt as attempt_states
from jobs.models import job as job_states
from jobs.transitions import move_attempt, move_job
from tests.factories import submit, take


def end_fields(final, to) -> dict:
    return {"end_reason": "internal_error"} if to in final else {}


def force(row, status, final) -> None:
    """Put a row into a state without asking; the constraints of the table still hold."""
    ended = {"finished_at": database_now(), "end_reason": "internal_error"}
    open_ = {"finished_at": None, "end_reason": ""}
    type(row).objects.filter(pk=row.pk).update(status=status, **(ended if status in final else open_))
    row.refresh_from_db()


def snapshot(row):
    return type(row).objects.filter(pk=row.pk).values().get()


def test_every_pair_of_a_job(site, user, account):
    job = submit(user)
    for source, to in itertools.product(JobStatus.values, repeat=2):
        force(job, source, FINAL)
        before, events = snapshot(job), job.events.count()
        done = move_job(job.pk, to, **end_fields(FINAL, to))
        assert done == (to in job_states.TRANSITIONS[source]), (source, to)
        if done:
            after = snapshot(job)
            assert after["status"] == to
            assert (after["finished_at"] is not None) == (to in FINAL)
            assert job.events.count() == events + 1
        else:
            assert (snapshot(job), job.events.count()) == (before, events)


def test_every_pair_of_an_attempt(site, user, account):
    attempt = take(submit(user))
    final = attempt_states.FINAL
    for source, to in itertools.product(AttemptStatus.values, repeat=2):
        force(attempt, source, final)
        before = snapshot(attempt)
        done = move_attempt(attempt, to, **end_fields(final, to))
        assert done == (to in attempt_states.TRANSITIONS[source]), (source, to)
        assert done or snapshot(attempt) == before


def test_a_stale_token_or_lease_changes_nothing(site, user, account):
    attempt = take(submit(user))
    before = snapshot(attempt)
    assert not move_attempt(attempt, "created", lease=uuid.uuid4())
    stale = Attempt.objects.get(pk=attempt.pk)
    stale.token = uuid.uuid4()
    assert not move_attempt(stale, "created")
    assert snapshot(attempt) == before
    assert move_attempt(attempt, "created", lease=attempt.lease)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"status": "succeeded"}, "job_finished_exactly_when_final"),
        ({"end_reason": "killed"}, "job_finished_exactly_when_final"),
        ({"status": "odd"}, "job_"),
        ({"tier": "odd"}, "job_tier_known"),
        ({"attempts_made": 4}, "job_attempts_bounded"),
        ({"cancel_reason": "cancelled"}, "job_cancel_request_complete"),
    ],
)
def test_the_database_refuses_what_must_not_be(site, user, account, fields, name):
    job = submit(user)
    with pytest.raises(IntegrityError, match=name), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**fields)


def test_one_live_attempt_of_a_job(site, user, account):
    attempt = take(submit(user))
    with pytest.raises(IntegrityError, match="attempt_one_live_per_job"), transaction.atomic():
        Attempt.objects.create(job=attempt.job, number=2, engine=attempt.engine, uid=1, container_name="x")


def test_a_move_writes_the_same_values_with_and_without_django_s_compiler(site, user, account):
    fields = {
        "exit_facts": {"a": [1, None]},
        "exit_code": None,
        "container_id": "x'%s\\",
        "exited_at": database_now(),
    }
    rows = []
    for guard in (None, Q(engine=site.engine)):
        attempt = take(submit(user), "created", "starting", "running")
        assert move_attempt(attempt, "collecting", lease=attempt.lease, let_go=True, guard=guard, **fields)
        assert not move_attempt(attempt, "settled", lease=uuid.uuid4(), guard=guard, end_reason="succeeded")
        attempt.refresh_from_db()
        rows.append({name: getattr(attempt, name) for name in (*fields, "status", "lease", "lease_until")})
        force(attempt.job, "cancelled", FINAL)
    assert rows[0] == rows[1] == {**fields, "status": "collecting", "lease": None, "lease_until": None}
