"""Constraints over REST: offered with their environment, kept by what a job gets, refused with a way out."""

import pytest

from environments.models import Constraint
from environments.setup import save_constraint
from jobs.models import Job
from tests.factories import Site, take

JOB = {"environment": "local/main", "command": ["true"]}


@pytest.fixture
def constraint(site: Site) -> Constraint:
    """For each core 512 MiB of memory, at most 1024."""
    resources = {row.slug: row for row in site.environment.resources.all()}
    row = Constraint(environment=site.environment)
    return save_constraint(row, resources, resource="cpu", target="ram", min=512, max=1024)


def test_an_environment_shows_them(site, client_api, constraint):
    resources = {row.slug: row for row in site.environment.resources.all()}
    whole = Constraint(environment=site.environment)
    save_constraint(whole, resources, resource="ram", target_kind="disk", per_unit=False, max=40_000)
    (offer,) = client_api.get("/api/v1/environments").json()
    assert offer["constraints"] == [
        {
            "resource": "cpu",
            "target": "ram",
            "target_kind": None,
            "per_unit": True,
            "aggregate": False,
            "min": 512,
            "max": 1024,
        },
        {
            "resource": "ram",
            "target": None,
            "target_kind": "disk",
            "per_unit": False,
            "aggregate": False,
            "min": 0,
            "max": 40_000,
        },
    ]
    assert client_api.get(f"/api/v1/environments/{offer['id']}").json() == offer


@pytest.mark.parametrize("tier", ["paid", "free"])
def test_a_job_shows_what_it_gets(client_api, constraint, tier):
    job = client_api.post("/api/v1/jobs", JOB | {"resources": {"cpu": 2}, "tier": tier}).json()
    assert job["resources"] == {"cpu": 2, "ram": 1024, "disk": 64}
    detail = client_api.get(f"/api/v1/jobs/{job['id']}").json()
    assert (detail["resources"], detail["spec"]["resources"]) == (job["resources"], {"cpu": 2})
    assert sum(take(Job.objects.get()).cores) == 1  # cores 0 and 1


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            {"cpu": 2, "ram": "3GiB"},
            "ram: asked 3072 MiB; with 2 cpu it is at most 2048 MiB: ask for at most 2048 MiB of ram, or for more cpu.",
        ),
        (
            {"cpu": 2},
            "ram: asked 64 MiB; with 2 cpu it is at least 9000 MiB, and at most 8192 MiB per job: ask for less cpu.",
        ),
    ],
    ids=str,
)
def test_a_refusal_names_what_and_how(client_api, constraint, resources, message):
    if "ram" not in resources:
        Constraint.objects.update(min=4500, max=None)
    response = client_api.post("/api/v1/jobs", JOB | {"resources": resources})
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["pointer"], error["detail"]) == ("/resources", message)
    assert not Job.objects.exists()


def test_a_later_edit_changes_nothing_for_admitted_jobs(client_api, constraint):
    client_api.post("/api/v1/jobs", JOB | {"resources": {"cpu": 2}})
    job = Job.objects.get()
    terms = job.terms
    Constraint.objects.update(min=2048, max=None)
    job.refresh_from_db()
    assert job.terms == terms
    taken = take(job)
    assert len(taken.cores) == 2
    held = job.environment.reservations.get().amounts.get(kind="ram")
    assert held.amount == 1024
    assert client_api.post("/api/v1/jobs", JOB).json()["resources"]["ram"] == 2048
