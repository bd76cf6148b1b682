"""What a job would cost: asked over REST, nothing written."""

from decimal import Decimal

import pytest

from environments.setup import create_environment
from jobs.billing.models import Hold
from jobs.models import IdempotencyKey, Job, JobEvent
from tests.factories import client_of, make_account, make_user, submit, take

GOOD = {"environment": "local/main", "command": ["true"], "resources": {"cpu": 2}, "max_duration": 90}


@pytest.fixture(autouse=True)
def nothing_written(db):
    """No quote leaves anything."""
    yield
    assert (Job.objects.filter(chosen__isnull=False).count(), IdempotencyKey.objects.count()) == (0, 0)


def quoted(client, **fields):
    before = Job.objects.count(), JobEvent.objects.count(), Hold.objects.count()
    response = client.post("/api/v1/jobs/quote", {**GOOD, **fields})
    assert response.status_code == 200, response.json()
    assert (Job.objects.count(), JobEvent.objects.count(), Hold.objects.count()) == before
    return response.json()


def test_a_quote(site, client_api):
    assert quoted(client_api) == {
        "refusal": None,
        "environment": {"id": str(site.environment.public_id), "name": "local/main"},
        "chosen": None,
        "resources": {"cpu": 2, "ram": 64, "disk": 64},
        "max_duration": 90,
        "currency": "credit",
        "price_per_minute": "2",
        "maximum_cost": "4",
        "pending_reason": "first in line; about to start",
        "estimated_wait": 0,
    }
    free = quoted(client_api, tier="free")
    assert (free["currency"], free["price_per_minute"], free["maximum_cost"]) == (None, "0", "0")


def test_what_it_would_wait_for(site, user, client_api):
    take(submit(user, resources={"cpu": 3}))
    submit(user)
    found = quoted(client_api)
    assert found["pending_reason"] == "needs 2 cpu, 1 free; second in line"


def test_a_selector_is_quoted_with_its_choice(site, client_api):
    dear = create_environment(
        site.engine, "dear", cpu="4-5", ram_mib=512, disk_mib=500, prices={"cpu": 5}, labels={"gpu": "a100"}
    )
    found = quoted(client_api, environment=None, selector={"labels": {"gpu": "a100"}})
    assert (found["environment"]["id"], found["price_per_minute"]) == (str(dear.public_id), "10")
    assert found["chosen"]["because"] == "the only one that can start it now; 10 credit per minute"
    assert found["chosen"]["others"] == [{"environment": "local/main", "why_not": "It has no label gpu."}]
    none = quoted(client_api, environment=None, selector={"labels": {"gpu": "b200"}})
    assert (none["refusal"]["status"], none["refusal"]["code"]) == (422, "no_environment_matches")
    assert [error["detail"] for error in none["refusal"]["errors"]] == [
        "local/dear: Label gpu is a100.",
        "local/main: It has no label gpu.",
    ]
    submitted = client_api.post(
        "/api/v1/jobs", {"command": ["true"], "selector": {"labels": {"gpu": "b200"}}}
    )
    assert submitted.status_code == 422
    assert submitted.json()["errors"] == none["refusal"]["errors"]


def test_which_rule_would_refuse(site, client_api, settings):
    too_much = quoted(client_api, resources={"cpu": 9})
    assert (too_much["refusal"]["status"], too_much["environment"], too_much["resources"]) == (
        400,
        None,
        None,
    )
    assert too_much["refusal"]["errors"][0]["pointer"] == "/resources"
    poor = client_of(make_user("poor"))
    assert quoted(poor)["refusal"]["errors"][0]["pointer"] == "/account"


def test_a_refusal_by_the_account_still_tells_the_price(site, settings):
    user = make_user("poor")
    make_account("poor", user, credit=Decimal("0.5"))
    client = client_of(user)
    found = quoted(client)
    assert (found["refusal"]["status"], found["refusal"]["code"]) == (402, "insufficient_funds")
    assert found["refusal"]["detail"] == "This job needs a hold of 4 credit; the account has 0.5 free."
    assert found["maximum_cost"] == "4"
    settings.MAX_QUEUED_JOBS_PER_ACCOUNT = 0
    assert quoted(client)["refusal"]["status"] == 429


def test_what_is_no_job_is_refused_as_ever(site, client_api):
    response = client_api.post("/api/v1/jobs/quote", {**GOOD, "selector": {}})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/selector")


def test_a_quote_that_stands_is_what_is_admitted(site, client_api):
    found = quoted(client_api)
    job = client_api.post("/api/v1/jobs", GOOD).json()
    assert (job["resources"], job["environment"], job["chosen"]) == (
        found["resources"],
        found["environment"],
        None,
    )
    assert str(Hold.objects.get().amount.normalize()) == found["maximum_cost"]
