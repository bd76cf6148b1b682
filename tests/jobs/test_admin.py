"""The operator's pages of jobs, accounts and tokens."""

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse

from jobs.billing.models import Account
from jobs.logs import append_log
from jobs.models import Job
from jobs.outcome import Outcome, StoredFile
from jobs.settlement import settle
from tests.factories import client_of, make_user, submit, take


@pytest.fixture
def operator(client, db):
    """A browser in which an administrator is logged in."""
    admin = make_user("root")
    admin.is_staff = admin.is_superuser = True
    admin.save()
    client.force_login(admin)
    return client


def page(job: Job) -> str:
    return f"/admin/jobs/job/{job.pk}/change/"


def test_jobs_are_listed_and_found(site, user, account, operator, django_assert_max_num_queries):
    jobs = [submit(user) for _ in range(3)]
    take(jobs[0])
    with django_assert_max_num_queries(12):
        text = operator.get("/admin/jobs/job/").content.decode()
    assert all(job.short_id in text for job in jobs)
    assert "ago" in text
    found = operator.get("/admin/jobs/job/", {"q": jobs[1].short_id}).content.decode()
    assert (jobs[1].short_id in found, jobs[2].short_id in found) == (True, False)
    assert operator.get("/admin/jobs/job/?q=%00").status_code == 400
    assert operator.get("/admin/jobs/job/?status__exact=queued").status_code == 200


def test_a_job_is_shown_whole_and_nothing_it_wrote_is_taken_as_markup(site, user, account, operator):
    attempt = take(submit(user, labels={"a": "<b>label</b>"}), "collecting")
    append_log(attempt, "stdout", 0, b"<script>alert(1)</script>\xff\x00")
    files = [StoredFile("<i>x</i>", 3, "0" * 64)]
    settle(attempt, attempt.lease, Outcome("exit_nonzero", detail="<u>3</u>", exit_code=3, artifacts=files))
    response = operator.get(page(attempt.job))
    text = response.content.decode()
    assert response.status_code == 200
    for markup in ("<script>alert(1)", "<b>label", "<i>x", "<u>3"):
        assert markup not in text
    for shown in ("&lt;script&gt;alert(1)", "\\xff\\0", "exit_nonzero", "&lt;i&gt;x", attempt.container_name):
        assert shown in text
    assert operator.get(page(submit(user))).status_code == 200


def test_jobs_are_never_edited(site, user, account, operator):
    job = submit(user)
    before = Job.objects.filter(pk=job.pk).values().get()
    assert operator.get("/admin/jobs/job/add/").status_code == 403
    assert operator.post(page(job), {"tier": "free"}).status_code == 403
    assert operator.post(f"/admin/jobs/job/{job.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Job.objects.filter(pk=job.pk).values().get() == before


def test_cancelling_from_the_list_and_from_the_page(site, user, account, operator):
    first, second = submit(user), take(submit(user)).job
    selected = {"action": "cancel_jobs", "_selected_action": [first.pk, second.pk]}
    operator.post("/admin/jobs/job/", selected)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, first.end_reason, first.cancel_requested_by) == (
        "cancelled",
        "cancelled_by_operator",
        "root",
    )
    assert (second.status, second.cancel_reason) == ("preparing", "cancelled_by_operator")
    third = submit(user)
    url = reverse("admin:jobs_job_cancel_job", args=[third.pk])
    assert operator.get(url).status_code == 200
    third.refresh_from_db()
    assert third.status == "queued"
    assert operator.post(url, {"_form_submitted": "on"}).status_code == 302
    third.refresh_from_db()
    assert third.end_reason == "cancelled_by_operator"


def test_looking_is_not_cancelling(site, user, account, client):
    job = submit(user)
    url = reverse("admin:jobs_job_cancel_job", args=[job.pk])
    viewer = make_user("viewer")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(viewer)
    assert client.get(page(job)).status_code == 200
    client.post("/admin/jobs/job/", {"action": "cancel_jobs", "_selected_action": [job.pk]})
    assert client.post(url, {"_form_submitted": "on"}).status_code == 403
    job.refresh_from_db()
    assert job.status == "queued"


def test_accounts_people_and_tokens(user, account, operator):
    for path in (
        "billing/account/",
        "billing/account/add/",
        f"billing/account/{account.pk}/change/",
        "auth/user/",
        f"auth/user/{user.pk}/change/",
        "auth/user/add/",
        "auth/group/",
        "jobs/token/",
    ):
        assert operator.get(f"/admin/{path}").status_code == 200, path
    inline = {
        "memberships-TOTAL_FORMS": 1,
        "memberships-INITIAL_FORMS": 0,
        "memberships-0-user": user.pk,
        "memberships-0-role": "member",
    }
    assert operator.post("/admin/billing/account/add/", {"name": "team", **inline}).status_code == 302
    assert Account.objects.get(name="team").memberships.get().user == user
    client = client_of(user)
    token = user.auth_token_set.get()
    assert operator.get("/admin/jobs/token/add/").status_code == 403
    operator.post(f"/admin/jobs/token/{token.pk}/delete/", {"post": "yes"})
    assert client.get("/api/v1/jobs").status_code == 401
