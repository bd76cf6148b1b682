"""Whatever a client sends, it gets a problem with a place, never a 500, and nothing is written."""

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from compute_site.core.strict_json import MAX_VALUES, NotJSON, read_json
from jobs.models import IdempotencyKey, Job, JobEvent

GOOD = {"environment": "local/main", "command": ["true"]}


def counts() -> tuple[int, ...]:
    return Job.objects.count(), JobEvent.objects.count(), IdempotencyKey.objects.count()


def send(client, body: bytes, content_type="application/json", **headers):
    return client.generic("POST", "/api/v1/jobs", body, content_type=content_type, headers=headers)


def is_problem(response, status: int) -> dict:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    problem = json.loads(response.content)
    assert set(problem) == {"type", "title", "status", "detail", "instance", "code", "errors"}
    assert problem["status"] == status
    return problem


FIELDS: dict[str, list[Any]] = {
    "environment": [None, 1, True, [], {}, "", "x", "local/other", "a/b/c", "local/main\0", "x" * 10_000],
    "image": [1, True, [], "", "a b", "x\0", "x" * 513, "http://evil/x", "--privileged"],
    "entrypoint": [None, "sh -c x", {}, [1], [""], ["x\0"], ["x"] * 300],
    "command": [None, "sh -c x", 1, [None], [["x"]], ["\0"], ["x" * 200_000]],
    "args": [None, "x", [True], [{}], ["\0"]],
    "env": [None, [], "A=1", {"A": 1}, {"A": None}, {"LD_PRELOAD": "x"}, {"NVIDIA_VISIBLE_DEVICES": "all"}, {"A": "\0"}, {"A=B": ""}],
    "inputs": [None, {}, [1], [{"name": "../x", "text": ""}], [{"name": "a", "text": 1}], [{"name": "a", "text": "\0"}], [{"name": "a", "text": ""}] * 2, [{"name": "a", "text": "x" * 2_000_000}]],
    "outputs": [1, "x", ["/etc/passwd"], ["../x"], [""], [1], ["a", "a"], ["\0"]],
    "resources": [None, [], {"cpu": "2"}, {"cpu": 1.5}, {"cpu": -1}, {"cpu": True}, {"cpu": 99}, {"cpu": 2**70}, {"tpu": 1}, {"ram": "much"}, {"disk": None}],
    "max_duration": [0, -1, "60", 1.5, True, 3601, 10**20, [], {}],
    "max_queue_wait": [0, -1, "60", 1.5, True, 10**20, []],
    "tier": [None, "gold", 1, [], "\0"],
    "account": [1, "x", [], "0191e4a2-0000-7000-8000-000000000001"],
    "labels": [None, [], {"a": 1}, {"": "x"}, {"a": "x" * 300}, {"a": "\0"}, {f"l{n}": "" for n in range(40)}],
    "privileged": [True],
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_wrong_in_turn(site, client_api, field):
    before = counts()
    for value in FIELDS[field]:
        response = client_api.post("/api/v1/jobs", {**GOOD, field: value}, headers={"Idempotency-Key": "k"})
        problem = is_problem(response, 400)
        assert problem["code"] == "invalid"
        places = [error["pointer"] for error in problem["errors"]]
        assert any(place == f"/{field}" or place.startswith(f"/{field}/") for place in places), (
            value,
            problem,
        )
    assert counts() == before


RAW = {
    "not json": b"{",
    "nothing": b"",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "not utf-8": b'{"environment": "\xff"}',
    "utf-16": '{"environment": "x"}'.encode("utf-16"),
    "too deep": b'{"environment":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 40 + b"1" + b"}" * 40,
    "deep, not closed": b"[" * 1_000_000,
    "many values": b"[" + b"[]," * 200_000 + b"[]]",
    "long number": b'{"max_duration": ' + b"9" * 10_000 + b"}",
    "surrogate key": b'{"\\ud800": 1}',
    "nul key": b'{"\\u0000": 1}',
    "open string": b'{"a": "' + b'\\"' * 100_000,
    "trailing": b"{} {}",
}


@pytest.mark.parametrize("name", RAW)
def test_bodies_that_are_no_job(site, client_api, name):
    before = counts()
    is_problem(send(client_api, RAW[name]), 400)
    assert counts() == before


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (rb'{"environment": "local/main", "command": ["a", "\u0000"]}', "/command/1"),
        (rb'{"environment": "local/main", "labels": {"a": "\ud800"}}', "/labels/a"),
        (rb'{"environment": "local/main", "max_duration": NaN}', "/max_duration"),
        (rb'{"environment": "local/main", "resources": {"cpu": Infinity}}', "/resources/cpu"),
        (rb'{"environment": "local/main", "resources": {"cpu": 1e400}}', "/resources/cpu"),
        (rb'{"environment": "local/main", "resources": {"cpu": 1, "cpu": 2}}', "/resources"),
        (rb'{"environment": "local/main", "environment": "local/main"}', ""),
    ],
)
def test_values_that_cannot_be_kept_are_told_with_their_place(site, client_api, text, place):
    problem = is_problem(send(client_api, text), 400)
    assert [error["pointer"] for error in problem["errors"]] == [place]
    assert counts() == (0, 0, 0)


def test_other_bodies_and_answers_than_json(site, client_api):
    is_problem(send(client_api, b"environment=x", "application/x-www-form-urlencoded"), 415)
    is_problem(send(client_api, b"--x--", "multipart/form-data; boundary=x"), 415)
    is_problem(send(client_api, b" " * (8 * 1024 * 1024 + 1)), 413)
    is_problem(client_api.get("/api/v1/jobs", headers={"Accept": "text/csv"}), 406)
    is_problem(client_api.put("/api/v1/jobs", {}), 405)
    is_problem(client_api.get("/api/v1/nothing"), 404)
    assert counts() == (0, 0, 0)


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256, "a\tb"])
def test_idempotency_keys_that_are_none(site, client_api, key):
    is_problem(client_api.post("/api/v1/jobs", GOOD, headers={"Idempotency-Key": key}), 400)
    assert counts() == (0, 0, 0)


@pytest.mark.parametrize(
    "query",
    [
        "status=%00", "status=x", "environment=%00", "environment=x", "ordering=x", "cursor=x", "cursor=%00", "limit=%00",
        "cursor=cD1hYmM%3D", "cursor=cD0lMDA%3D", "cursor=cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "cursor=bz0tMQ%3D%3D", "x=%ff", "status=%ED%A0%80",
    ],
)  # fmt: skip
def test_queries_are_never_a_fault_of_ours(site, client_api, query):
    assert client_api.get(f"/api/v1/jobs?{query}").status_code in (200, 400, 404)


@pytest.mark.parametrize("path", ["/api/v1/jobs/%00", "/api/v1/%00", "/admin/%00", "/api/v1/jobs/x"])
def test_addresses_are_never_a_fault_of_ours(site, client_api, path):
    assert client_api.get(path).status_code == 404


@pytest.mark.parametrize(
    "header", ["Bearer x", "Bearer", "Bearer a b", "Bearer \xff", "Bearer cs_" + "0" * 64, "Basic x", "x"]
)
def test_credentials_that_are_none(site, client, header):
    is_problem(client.get("/api/v1/jobs", headers={"Authorization": header}), 401)


def test_many_values_are_taken_up_to_the_bound():
    assert len(read_json(b"[" + b"1," * (MAX_VALUES - 1) + b"1]")) == MAX_VALUES
    with pytest.raises(NotJSON, match="values"):
        read_json(b"[" + b'"",' * 2 * MAX_VALUES + b"1]")
    text = '[{,\\"' * 100_000
    assert read_json(json.dumps([text]).encode()) == [text]
    with pytest.raises(ValidationError):
        read_json(b'["\\udc00"]')
