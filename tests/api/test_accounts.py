"""A client reads its balances, ledger and holds, and a job's cost; another's account is not there."""

import pytest

from compute_site.core.db import database_now
from jobs.api import urls
from jobs.outcome import Outcome
from jobs.settlement import record_exit, settle
from tests.factories import make_account, make_user, submit, take

ROUTES = {"account": "", "account-ledger": "/ledger", "account-holds": "/holds"}


def test_balances_ledger_and_holds(site, user, account, client_api):
    attempt = take(submit(user, max_duration=600), "created", "starting", "running")
    record_exit(attempt, facts={}, exit_code=0, started_at=database_now())
    assert settle(attempt, attempt.lease, Outcome("succeeded", exit_code=0, run_seconds=61))
    waiting = submit(user, max_duration=60)
    balance = {"currency": "credit", "amount": "999998", "held": "1", "free": "999997"}
    [listed] = client_api.get("/api/v1/accounts").json()
    assert (listed["id"], listed["name"], listed["balances"]) == (str(account.public_id), "ada's", [balance])
    path = f"/api/v1/accounts/{account.public_id}"
    assert client_api.get(path).json() == listed
    entries = client_api.get(f"{path}/ledger").json()["results"]
    assert [(e["kind"], e["amount"], e["currency"], e["job"]) for e in entries] == [
        ("capture", "-2", "credit", str(attempt.job.public_id)),
        ("top_up", "1000000", "credit", None),
    ]
    holds = client_api.get(f"{path}/holds").json()["results"]
    assert [(h["job"], h["amount"], h["captured"], h["status"]) for h in holds] == [
        (str(waiting.public_id), "1", "0", "open"),
        (str(attempt.job.public_id), "10", "2", "captured"),
    ]
    cost = client_api.get(f"/api/v1/jobs/{attempt.job.public_id}").json()["cost"]
    assert cost == {"currency": "credit", "amount": "2", "held": "0", "final": True}


def test_the_cost_of_a_job_while_it_waits_and_when_it_is_cancelled(site, user, client_api):
    job = submit(user, max_duration=600)
    path = f"/api/v1/jobs/{job.public_id}"
    expected = {"currency": "credit", "amount": "0", "held": "10", "final": False}
    assert client_api.get(path).json()["cost"] == expected
    assert client_api.post(f"{path}/cancel").json()["cost"] == {**expected, "held": "0", "final": True}
    free = submit(user, tier="free")
    assert client_api.get(f"/api/v1/jobs/{free.public_id}").json()["cost"] is None


def test_a_job_without_the_money_for_it_answers_402(site, user, client_api, account):
    account.balances.update(amount="2.5")
    response = client_api.post("/api/v1/jobs", {"environment": "local/main", "max_duration": 600})
    assert (response.status_code, response["Content-Type"]) == (402, "application/problem+json")
    assert response.json()["code"] == "insufficient_funds"
    assert response.json()["detail"] == "This job needs a hold of 10 credit; the account has 2.5 free."


def test_all_routes_of_an_account_are_named_here():
    patterns = [p for p in urls.urlpatterns if str(p.pattern).startswith("accounts/<")]
    assert {p.name for p in patterns} == set(ROUTES)


@pytest.mark.parametrize("path", ROUTES.values(), ids=ROUTES)
def test_another_account_is_not_there(client_api, client, path):
    foreign = make_account("bob's", make_user("bob"))
    url = f"/api/v1/accounts/{foreign.public_id}{path}"
    assert client_api.get(url).status_code == 404
    assert client.get(url).status_code == 401
    assert len(client_api.get("/api/v1/accounts").json()) == 1
