"""A start that is not wanted any more, and a workspace that resists."""

from typing import Any

from compute_site.core.db import database_now
from compute_site.core.errors import InfrastructureFailed
from jobs.models import Job
from jobs.outcome import Outcome
from jobs.settlement import settle
from tests.factories import submit, take
from workers import runner
from workers.steps import Run


class Stuck:
    """A workspace whose disk somebody holds."""

    def destroy(self) -> None:
        raise InfrastructureFailed("storage_failed", "unmount of it: busy")


class Silent:
    """An engine on which nothing is."""

    class client:
        @staticmethod
        def inspect(name: str) -> None:
            return None

    class engine:
        pk = 0
        facts: dict[str, Any] = {}

    def workspace(self, name: str, image_id: str = "") -> Stuck:
        return Stuck()


def run_of(attempt: Any) -> Run:
    return Run(attempt, attempt.job, attempt.lease, Silent())  # type: ignore[arg-type]


def test_a_cancel_before_the_image_is_no_fault_of_ours(site, user, account, caplog):
    attempt = take(submit(user))
    Job.objects.filter(pk=attempt.job_id).update(
        cancel_requested_at=database_now(), cancel_reason="cancelled"
    )
    attempt.job.refresh_from_db()
    assert runner._begin(run_of(attempt))
    attempt.refresh_from_db()
    assert (attempt.status, attempt.end_reason) == ("settled", "cancelled")
    assert "fault of ours" not in caplog.text


def test_a_workspace_that_resists_is_told_as_a_leftover_and_tried_again(site, user, account):
    attempt = take(submit(user), "collecting")
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0))
    attempt.refresh_from_db()
    runner.advance(run_of(attempt))
    attempt.refresh_from_db()
    assert "busy" in attempt.leftover
    assert (attempt.lease, attempt.cleaned_at) == (None, None)
    assert attempt.not_before is not None
