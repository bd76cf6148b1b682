"""Retiring an environment by its page: what becomes of the jobs there is told with their numbers, and is so."""

from django.contrib.messages import get_messages

from environments.models import Environment
from jobs.retention import expire_queued
from tests.factories import submit, take
from tests.jobs.test_admin import operator  # noqa: F401


def address(environment: Environment) -> str:
    return f"/admin/fleet/fleetpolicy/retire/{environment.pk}/"


def test_running_jobs_refuse_it_and_queued_ones_end(site, user, account, operator):  # noqa: F811
    take(submit(user))
    for _ in range(2):
        submit(user)
    shown = operator.get(address(site.environment)).context_data
    assert shown["follows"][1] == "Jobs that wait in its queue: 2. They end as expired, and cost nothing."
    assert "1 jobs still hold resources of local/main" in shown["refused"][0]
    assert operator.post(address(site.environment)).context_data["refused"] == shown["refused"]
    assert Environment.objects.get().state == "active"


def test_the_queue_of_a_retired_one_ends_as_it_was_told(site, user, account, operator):  # noqa: F811
    jobs = [submit(user) for _ in range(2)]
    response = operator.post(address(site.environment), {"comment": "sold"})
    (told,) = get_messages(response.wsgi_request)
    assert str(told) == "local/main: retired; the jobs of its queue (2) end as expired"
    edit = site.environment.edits.all()[0]
    assert (edit.by, edit.comment, edit.state) == ("root", "sold", "retired")
    assert expire_queued() == 2
    for job in jobs:
        job.refresh_from_db()
        assert (job.status, job.end_detail, job.hold.status) == (
            "expired",
            "Its environment was retired.",
            "released",
        )
    assert "No job waits in its queue." in operator.get(address(site.environment)).context_data["follows"]
