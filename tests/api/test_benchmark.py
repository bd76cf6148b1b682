"""The benchmark environment among the offers: told as what it is, and only to whom it is open."""

from typing import Any

import pytest

from environments.benchmark import keep_in_step
from environments.models import Engine
from tests.factories import Site, client_of, make_account, make_user


@pytest.fixture
def monitor(site: Site, settings: Any) -> Any:
    settings.BENCHMARK_SECONDS, settings.BENCHMARK_CURRENCY = 120, "credit"
    settings.BENCHMARK_CORE_PRICE, settings.BENCHMARK_USERS = "0", ["monitor"]
    Engine.objects.update(enable_benchmark=True)
    keep_in_step(site.engine)
    user = make_user("monitor")
    make_account("monitor's", user)
    return client_of(user)


def names(client: Any) -> dict[str, bool]:
    return {row["name"]: row["benchmark"] for row in client.get("/api/v1/environments").json()}


def test_it_is_shown_to_those_it_is_for(monitor, client_api):
    assert names(monitor) == {"local/benchmark": True, "local/main": False}
    assert names(client_api) == {"local/main": False}
    (row,) = [one for one in monitor.get("/api/v1/environments").json() if one["benchmark"]]
    assert row["estimated_wait"] is None
    assert monitor.get(f"/api/v1/environments/{row['id']}").status_code == 200
    assert client_api.get(f"/api/v1/environments/{row['id']}").status_code == 404


def test_only_those_may_measure(monitor, client_api):
    job = {"environment": "local/benchmark", "command": ["true"], "resources": {"cpu": 8}}
    assert "There is no such environment." in client_api.post("/api/v1/jobs", job).content.decode()
    assert monitor.post("/api/v1/jobs", job).status_code in (200, 201, 202)
    too_long = monitor.post("/api/v1/jobs", {**job, "max_duration": 121})
    assert too_long.status_code == 400


def test_no_selector_chooses_it(monitor):
    asked = {"selector": {}, "command": ["true"], "resources": {"cpu": 8}}
    answer = monitor.post("/api/v1/jobs", asked)
    assert answer.status_code >= 400
    assert "local/benchmark" not in answer.content.decode()
