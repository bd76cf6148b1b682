"""The shape of a function job: what is taken, and each fault with its place."""

# mypy: disable-error-code="var-annotated"

import base64

import pytest
from django.core.exceptions import ValidationError

from jobs.models import Job
from jobs.spec import Spec, read_spec
from jobs.spec_function import MAX_BUNDLE_BYTES, bundle_of
from tests.bundles import function, tar_gz, zipped

GZIP = b"\x1f\x8b"


def asked(**changes) -> dict:
    return {"environment": "local/main", "function": function("x = 1", "own.deep:run"), **changes}


def faults(body: dict) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        read_spec(body)
    return caught.value.message_dict


def test_a_function_is_read_with_its_defaults_and_comes_back_the_same():
    spec = read_spec(asked())
    assert spec.function is not None
    assert (spec.function["role"], spec.function["args"], spec.declared) == ("plain", {}, None)
    assert bundle_of(spec.function) == tar_gz({"own.py": "x = 1"})
    assert Spec.from_json(spec.as_json()) == spec
    assert read_spec(asked(function=function(zipped({"own.py": ""})))).function is not None


def test_a_job_without_a_function_is_stored_as_before():
    assert "function" not in read_spec({"environment": "local/main", "function": None}).as_json()


@pytest.mark.parametrize(
    ("role", "outputs", "declared"),
    [
        ("plain", None, None),
        ("plain", ["a"], ("a", "result.json")),
        ("plain", ["result.json"], ("result.json",)),
        ("train", None, ("model", "result.json")),
        ("aggregate", None, ("model", "result.json")),
        ("evaluate", None, ("result.json",)),
    ],
)
def test_the_role_declares_the_outputs(role, outputs, declared):
    body = asked(function=function("", role=role, args={"candidates": ["a"]}), outputs=outputs)
    spec = read_spec({**body, "inputs": [{"name": "a", "text": ""}]})
    assert spec.declared == declared
    assert spec.declares("model/weights") == (declared is None or "model" in declared)
    assert spec.declares("scratch") == (declared is None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("image", "a:1"), ("command", ["x"]), ("args", ["x"]), ("entrypoint", ["x"])],
)
def test_a_function_or_a_command(field, value):
    assert list(faults(asked(**{field: value}))) == [field]


def test_outputs_of_a_role_are_not_the_clients():
    assert list(faults(asked(function=function("", role="train"), outputs=["x"]))) == ["outputs"]


WRONG = [
    ("", []),
    ("", "own:run"),
    ("/more", {**function(""), "more": 1}),
    ("/bundle", {"entry": "own:run"}),
    ("/entry", {"bundle": function("")["bundle"]}),
    ("/role", function("", role="other")),
    ("/role", function("", role=["plain"])),
    ("/role", function("", role=None)),
    ("/args", function("", args=[1])),
    ("/args", function("", args=None)),
    ("/args", function("", args={"a": "x" * 65536})),
    ("/args", function("", args={"a": "\0"})),
    ("/args", function("", args={"a": float("nan")})),
    ("/args", function("", args={"a": 10**70})),
    *(("/bundle", {**function(""), "bundle": text}) for text in (1, None, "", "not base64!", "é", "a\0b")),
    ("/bundle", function(b"#!/bin/sh\n")),
    ("/bundle", function(GZIP + b"x" * MAX_BUNDLE_BYTES)),
    *(
        ("/entry", function("", entry))
        for entry in ("own", "own:", ":run", "own:run:x", "own:run.x", "../own:run", "own..x:run", "a b:run")
    ),
    *(
        ("/entry", function("", entry))
        for entry in ("own:run\n", "1own:run", "own:class", "if.x:run", "öwn:run")
    ),
    ("/entry", {**function(""), "entry": 1}),
    ("/args/candidates", function("", role="evaluate")),
    ("/args/candidates", function("", role="evaluate", args={"candidates": []})),
    ("/args/candidates", function("", role="evaluate", args={"candidates": "a"})),
    ("/args/candidates/0", function("", role="evaluate", args={"candidates": ["none"]})),
    ("/args/candidates/1", function("", role="evaluate", args={"candidates": ["a", "a"]})),
]


@pytest.mark.parametrize(("path", "value"), WRONG)
def test_each_fault_has_its_place(path, value):
    body = asked(function=value, inputs=[{"name": "a", "text": ""}])
    assert list(faults(body)) == [f"function{path}"]


def test_the_largest_bundle_is_taken():
    content = GZIP + bytes(MAX_BUNDLE_BYTES - 2)
    spec = read_spec(asked(function=function(content)))
    assert spec.function is not None
    assert bundle_of(spec.function) == content


def test_over_rest_a_bad_bundle_leaves_nothing_and_a_good_one_is_not_sent_back(site, client_api):
    body = {"environment": str(site.environment.public_id), "resources": {"cpu": 1, "ram": 64, "disk": 64}}
    refused = client_api.post("/api/v1/jobs", {**body, "function": function(b"nothing")})
    assert refused.status_code == 400
    assert not Job.objects.exists()
    answer = client_api.post("/api/v1/jobs", {**body, "function": function("x = 1", args={"n": 1})})
    assert answer.status_code == 201, answer.content
    told = client_api.get(f"/api/v1/jobs/{answer.json()['id']}").json()["spec"]["function"]
    assert told["bundle"]["size"] == len(tar_gz({"own.py": "x = 1"}))
    assert (told["entry"], told["args"]) == ("own:run", {"n": 1})
    assert base64.b64encode(GZIP).decode()[:3] not in str(told)
