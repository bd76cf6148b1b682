"""Another account's job is not there, in any route; without a token nothing is."""

import pytest
from django.urls import get_resolver

from jobs.models import Artifact, Job
from tests.factories import client_of, make_account, make_user, submit, take

ROUTES = {
    "job": ("GET", ""),
    "job-cancel": ("POST", "/cancel"),
    "job-events": ("GET", "/events"),
    "job-logs": ("GET", "/logs"),
    "job-artifacts": ("GET", "/artifacts"),
    "job-artifact": ("GET", "/artifacts/a"),
}


@pytest.fixture
def foreign(site, db) -> Job:
    """A running job of somebody else, with an output."""
    bob = make_user("bob")
    make_account("bob's", bob)
    attempt = take(submit(bob), "created", "starting", "running")
    Artifact.objects.create(job=attempt.job, attempt=attempt, path="a", size=0, sha256="0" * 64)
    return Job.objects.get(pk=attempt.job_id)


def test_all_routes_of_a_job_are_named_here():
    patterns = [p for resolver in get_resolver().url_patterns for p in getattr(resolver, "url_patterns", [])]
    of_a_job = {p.name for p in patterns if str(p.pattern).startswith("jobs/<")}
    assert of_a_job == set(ROUTES)


@pytest.mark.parametrize("name", ROUTES)
def test_another_accounts_job_is_not_there(foreign, client_api, client, name):
    method, path = ROUTES[name]
    before = Job.objects.filter(pk=foreign.pk).values().get()
    url = f"/api/v1/jobs/{foreign.public_id}{path}"
    response = client_api.generic(method, url)
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")
    unknown = client.generic(method, url)
    assert unknown.status_code == 401
    assert "POST /api/v1/tokens makes one" in unknown.json()["detail"]
    assert Job.objects.filter(pk=foreign.pk).values().get() == before


def test_lists_show_ones_own_jobs(foreign, user, client_api):
    own = submit(user)
    results = client_api.get("/api/v1/jobs").json()["results"]
    assert [job["id"] for job in results] == [str(own.public_id)]


def test_another_accounts_key_and_name_are_of_no_use(foreign, client_api):
    body = {"environment": "local/main", "account": str(foreign.account.public_id)}
    response = client_api.post("/api/v1/jobs", body)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/account")
    assert Job.objects.count() == 1


def test_members_of_one_account_share_its_jobs(foreign):
    carl = make_user("carl")
    foreign.account.memberships.create(user=carl)
    assert client_of(carl).get(f"/api/v1/jobs/{foreign.public_id}").status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/environments", "/api/v1/tokens/current"])
def test_nothing_without_a_token(site, client, path):
    assert client.generic("DELETE" if path.endswith("current") else "GET", path).status_code == 401
