"""ETags: what a client has seen is not sent again, and is not written over once it is something else."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from compute_site.core.db import lock_one
from environments import editing
from environments.models import Environment
from jobs.cancellation import cancel
from jobs.models import Job, JobEvent
from jobs.transitions import move_job
from tests.api.test_configuration import EXPORT, IMPORT, engine, host, staff  # noqa: F401
from tests.environments.importing.conftest import everything, nested, offer
from tests.factories import client_of, make_account, make_site, make_user, submit, take

GONE = "It is not what you saw any more: read it again. Nothing was changed."


def at(job: Job) -> str:
    return f"/api/v1/jobs/{job.public_id}"


def if_match(tag: str) -> dict[str, str]:
    return {"If-Match": tag}


def everything_of(job: Job) -> Any:
    return Job.objects.filter(pk=job.pk).values().get(), JobEvent.objects.filter(job=job).count()


def test_a_job_is_sent_again_only_when_it_has_changed(site, user, client_api):
    job = submit(user)
    first = client_api.get(at(job))
    tag = first["ETag"]
    assert tag.startswith('W/"')
    again = client_api.get(at(job), headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag)
    for known in (tag.removeprefix("W/"), f'"x", {tag}', "*"):
        assert client_api.get(at(job), headers={"If-None-Match": known}).status_code == 304
    for unknown in ('"x"', "x", ""):
        assert client_api.get(at(job), headers={"If-None-Match": unknown}).status_code == 200
    take(job)
    changed = client_api.get(at(job), headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["status"]) == (200, "preparing")
    assert changed["ETag"] != tag
    other = client_of(make_user("eve"))
    assert other.get(at(job), headers={"If-None-Match": "*"}).status_code == 404


def test_the_tag_costs_no_statement(site, user, client_api, django_assert_num_queries):
    job = submit(user)
    with CaptureQueriesContext(connection) as reading:
        tag = client_api.get(at(job))["ETag"]
    assert sum("xmin" in one["sql"] for one in reading.captured_queries) == 1
    with CaptureQueriesContext(connection) as known:
        client_api.get(at(job), headers={"If-None-Match": tag})
    assert len(known) < len(reading)
    with CaptureQueriesContext(connection) as plain:
        client_api.post(f"{at(job)}/cancel")
    assert not any("xmin" in one["sql"] for one in plain.captured_queries)


@pytest.mark.parametrize("unseen", ['W/"1"', '"1", "2"', "nonsense", ""])
def test_a_job_that_is_not_as_seen_is_not_cancelled(site, user, client_api, unseen):
    job = submit(user)
    before = everything_of(job)
    answer = client_api.post(f"{at(job)}/cancel", headers=if_match(unseen))
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (
        412,
        "version_changed",
        GONE,
    )
    assert everything_of(job) == before


def test_a_job_as_seen_is_cancelled(site, user, client_api):
    job = submit(user)
    tag = client_api.get(at(job))["ETag"]
    take(job)
    assert client_api.post(f"{at(job)}/cancel", headers=if_match(tag)).status_code == 412
    assert Job.objects.get(pk=job.pk).cancel_requested_at is None
    tag = client_api.get(at(job))["ETag"]
    assert client_api.post(f"{at(job)}/cancel", headers=if_match(f'"x", {tag}')).status_code == 200
    assert Job.objects.get(pk=job.pk).cancel_requested_by == "ada"
    assert client_api.post(f"{at(job)}/cancel", headers=if_match("*")).status_code == 200
    assert client_api.post(f"{at(job)}/cancel", headers=if_match(tag)).status_code == 412
    assert client_api.post(f"{at(job)}/cancel").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_being_written_is_waited_for():
    site, user = make_site(), make_user("ada")
    make_account("ada's", user)
    job, client = submit(user), client_of(user)
    tag = client.get(at(job))["ETag"]
    answers: list[int] = []

    def ask() -> None:
        answers.append(client.post(f"{at(job)}/cancel", headers=if_match(tag)).status_code)
        connection.close()

    asking = threading.Thread(target=ask)
    with transaction.atomic():
        lock_one(Job.objects.filter(pk=job.pk))
        assert move_job(job.pk, "preparing")
        asking.start()
        asking.join(timeout=0.3)
        assert not answers  # it waits for the lock
    asking.join()
    assert answers == [412]
    assert Job.objects.get(pk=job.pk).cancel_requested_at is None
    assert site.environment.jobs.count() == 1


def test_a_configuration_is_imported_where_it_is_as_seen(staff, engine):  # noqa: F811
    send = {"configuration": nested(offer("a")), "engine": "local"}
    assert staff.post(IMPORT, send).json()["applied"]
    for query, named in (({}, {}), ({"engine": "local"}, {"engine": "local"})):
        exported = staff.get(EXPORT, query)
        tag = exported["ETag"]
        assert staff.get(EXPORT, query, headers={"If-None-Match": tag}).status_code == 304
        whole = exported.json()
        whole[0]["environments"][0]["description"] = f"new {len(query)}"
        before = everything()
        body = {"configuration": whole, **named}
        stale = staff.post(IMPORT, body, headers=if_match('"x"'))
        assert (stale.status_code, stale.json()["code"]) == (412, "version_changed")
        assert everything() == before
        assert staff.post(IMPORT, body, headers=if_match(tag)).json()["applied"]
        assert staff.post(IMPORT, body, headers=if_match(tag)).status_code == 412
        assert staff.get(EXPORT, query, headers={"If-None-Match": tag}).status_code == 200
    new = {"configuration": nested(offer("a")), "engine": "second", "host": engine.host.name}
    before = everything()
    assert staff.post(IMPORT, new, headers=if_match("*")).status_code == 412
    assert everything() == before


@pytest.mark.django_db(transaction=True)
def test_an_edit_that_is_being_written_is_waited_for():
    site, user = make_site(), make_user("olga")
    user.is_staff = user.is_superuser = True
    user.save()
    client = client_of(user)
    exported = client.get(EXPORT)
    whole = exported.json()
    whole[0]["environments"][0]["description"] = "mine"
    answers: list[int] = []

    def send() -> None:
        body = {"configuration": whole}
        answers.append(client.post(IMPORT, body, headers=if_match(exported["ETag"])).status_code)
        connection.close()

    sending = threading.Thread(target=send)
    with editing.edited(site.environment):
        Environment.objects.update(description="theirs")
        sending.start()
        sending.join(timeout=0.5)
        assert not answers
    sending.join()
    assert answers == [412]
    assert Environment.objects.get().description == "theirs"


def test_an_import_that_only_plans_writes_nothing_behind_the_header(staff, engine):  # noqa: F811
    tag = staff.get(EXPORT)["ETag"]
    before = everything()
    body = {"configuration": nested(offer("a")), "dry_run": True}
    answer = staff.post(IMPORT, body, headers=if_match(tag))
    assert (answer.status_code, answer.json()["applied"]) == (200, False)
    assert everything() == before


def test_cancelling_elsewhere_changes_the_tag(site, user, client_api):
    job = take(submit(user)).job
    tag = client_api.get(at(job))["ETag"]
    cancel(job, "ada")
    assert client_api.get(at(job))["ETag"] != tag
