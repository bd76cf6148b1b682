"""The shape of a job: what is taken, and each fault with its place."""

# mypy: disable-error-code="var-annotated"

import uuid

import pytest
from django.core.exceptions import ValidationError

from jobs.spec import Spec, read_spec

GOOD = {
    "environment": "local/main",
    "image": "registry.example:5000/team/tool:1.2@sha256:" + "a" * 64,
    "entrypoint": ["/bin/tool"],
    "command": ["run", ""],
    "args": ["--x", "päth"],
    "env": {"GREETING": "hé", "_x": ""},
    "inputs": [{"name": "a.csv", "text": "1,2\n"}, {"name": "b", "text": ""}],
    "outputs": ["model/weights", "report.md"],
    "resources": {"cpu": 2, "ram": "4GiB", "disk": "512MiB", "gpu": 0},
    "max_duration": 60,
    "max_queue_wait": 600,
    "tier": "free",
    "account": "0191e4a2-0000-7000-8000-000000000001",
    "labels": {"team/project": "x"},
}


def faults(**changes) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        read_spec({**GOOD, **changes})
    return caught.value.message_dict


def test_everything_that_may_be_asked_is_read_exactly():
    spec = read_spec(GOOD)
    assert spec.command == ("run", "")
    assert spec.inputs == {"a.csv": "1,2\n", "b": ""}
    assert spec.resources == {"cpu": 2, "ram": 4096, "disk": 512, "gpu": 0}
    assert str(spec.account) == GOOD["account"]
    assert Spec.from_json(spec.as_json()) == spec


def test_only_an_environment_must_be_named():
    assert read_spec({"environment": "local/main"}) == Spec(environment="local/main")
    assert read_spec({"environment": "local/main", "image": None, "outputs": None}).outputs is None


def test_declared_outputs_are_files_or_folders():
    spec = read_spec({**GOOD, "outputs": ["model", "a.txt"]})
    assert spec.declares("model/x/y")
    assert spec.declares("a.txt")
    assert not spec.declares("models")
    assert read_spec({"environment": "local/main"}).declares("anything")
    assert not read_spec({"environment": "local/main", "outputs": []}).declares("anything")


BAD_TEXT = [1, True, None, 1.5, [], {}, "a\0b", "\ud800"]
WRONG = [
    *[("environment", value, "environment") for value in [*BAD_TEXT, "", "x", "a/b/c", "a" * 200, "A/b", str(uuid.UUID(int=1))[:-1]]],
    *[("image", value, "image") for value in [1, True, [], "a\0b", "\ud800", "", " x", "x y", "-x", "X", "a" * 513, "x@sha256:1", "x:", "a//b", "../x", "Abc/def", "a..b/x", "a-.b/x", "x/" * 140 + "y", "x" * 256]],
    *[(name, value, name) for name in ("entrypoint", "command", "args") for value in [None, 1, "a b", {}, ["x"] * 257]],
    *[(name, [item], f"{name}/0") for name in ("entrypoint", "command", "args") for item in BAD_TEXT],
    ("entrypoint", [""], "entrypoint/0"),
    ("command", ["x" * 65_536], "command/0"),
    ("args", ["x" * 1000] * 66, "args"),
    *[("env", value, "env") for value in [None, [], "A=b", 1, {f"V{n}": "" for n in range(129)}]],
    *[("env", {"A": value}, "env/A") for value in [1, True, None, [], {}, "a\0b", "\udfff", "x" * 40_000]],
    *[("env", {name: "x"}, f"env/{name}") for name in ["1A", "A-B", "A=B", "", "LD_PRELOAD", "PYTHONPATH", "NVIDIA_VISIBLE_DEVICES", "DOCKER_HOST", "GLIBC_TUNABLES", "JOB_ID", "A" * 129]],
    ("env", {"A": "x" * 32_000, "B": "x" * 32_000, "C": "x" * 32_000}, "env"),
    *[("inputs", value, "inputs") for value in [None, {}, "x", [{"name": f"n{i}", "text": ""} for i in range(65)]]],
    *[("inputs", [value], "inputs/0") for value in [None, 1, "x", {}, {"name": "a"}, {"name": "a", "text": "", "more": 1}]],
    *[("inputs", [{"name": name, "text": ""}], "inputs/0/name") for name in [1, None, "", ".", "..", "a/b", "a b", "é", "a" * 129, "a\0", "a\n"]],
    *[("inputs", [{"name": "a", "text": text}], "inputs/0/text") for text in [1, None, [], "a\0b", "\ud800", "x" * 1_048_577]],
    ("inputs", [{"name": "a", "text": ""}, {"name": "a", "text": ""}], "inputs/1/name"),
    ("inputs", [{"name": "a", "text": "x" * 600_000}, {"name": "b", "text": "x" * 600_000}], "inputs"),
    *[("outputs", value, "outputs") for value in [1, "x", {}, ["x"] * 257]],
    *[("outputs", [value], "outputs/0") for value in [*BAD_TEXT, "", "/x", "x/", "a/../b", "..", ".", "a//b", "a\nb", "x" * 1025]],
    ("outputs", ["a", "a"], "outputs/1"),
    *[("resources", value, "resources") for value in [None, [], "cpu=2", 1, {f"r{n}": 1 for n in range(65)}]],
    *[("resources", {"cpu": value}, "resources/cpu") for value in [True, None, 1.0, 1.5, "2", "2GiB", [], {}, -1, 2**63, 10**50, float("nan"), float("inf")]],
    *[("resources", {"ram": value}, "resources/ram") for value in ["4", "4GB", "-1GiB", "1.5GiB", "GiB", " 4GiB", "4GiB\n", "9999999999999GiB", "999999999999TiB\0"]],
    *[("resources", {name: 1}, f"resources/{name}".replace("a/b", "a~1b")) for name in ["", "CPU", "a/b", "a b", "a" * 64]],
    *[(name, value, name) for name in ("max_duration", "max_queue_wait") for value in [True, "60", 1.5, float("nan"), float("inf"), 0, -1, 2**40, 10**30, [], {}]],
    *[("tier", value, "tier") for value in [None, "", "gold", 1, True, [], {}, "paid\0"]],
    *[("account", value, "account") for value in [1, "", "me", True, [], "0" * 32, "urn:uuid:" + str(uuid.UUID(int=1)), "{" + str(uuid.UUID(int=1)) + "}"]],
    *[("labels", value, "labels") for value in [None, [], "x", {f"l{n}": "" for n in range(33)}]],
    *[("labels", {"a": value}, "labels/a") for value in [1, None, True, [], "a\0b", "\ud800", "x" * 256]],
    *[("labels", {name: ""}, f"labels/{name}") for name in ["", " ", "-a", "a" * 64, "é"]],
    ("surprise", 1, "surprise"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "place"), WRONG, ids=lambda value: repr(value)[:40])
def test_each_fault_is_told_with_its_place(field, value, place):
    assert place in faults(**{field: value})


def test_faults_are_told_together_and_hostile_ones_stay_few():
    assert set(faults(tier="x", max_duration=0, more=1)) == {"tier", "max_duration", "more"}
    assert len(faults(**{f"unknown{n}": 1 for n in range(1000)})) == 100


@pytest.mark.parametrize("body", [None, [], "x", 1, True])
def test_a_job_is_an_object(body):
    with pytest.raises(ValidationError):
        read_spec(body)


def test_the_environment_is_required():
    with pytest.raises(ValidationError) as caught:
        read_spec({})
    assert list(caught.value.message_dict) == ["environment"]
