"""Constraints in every form that a file has them, and back."""

import json
from typing import Any

import pytest

from environments.amounts import fill
from environments.importing import as_json, export_engine
from environments.models import Constraint, Environment
from tests.environments.importing.conftest import everything, gpu, nested, offer, refused, resource, run

Told = tuple[str, str, str, int, int | None]


def with_gpu(*constraints: Any, **more: Any) -> dict[str, Any]:
    """A plain environment with both GPUs, and these constraints on them."""
    made = offer(**more)
    made["resources"].append(gpu("g", "GPU-rack-a-0", "GPU-rack-a-1", constraints=list(constraints)))
    return made


def told() -> list[Told]:
    """Asked resource, target, how it counts, min, max."""
    rows = Constraint.objects.select_related("resource", "target").order_by("pk")
    return [
        (
            row.resource.slug,
            row.target.slug if row.target else f"all {row.target_kind}",
            ("sum " if row.aggregate else "") + ("each" if row.per_unit else "any"),
            row.min,
            row.max,
        )
        for row in rows
    ]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"id": "ram", "min": 0.5, "max": 1}, ("g", "ram", "each", 512, 1024)),
        ({"id": "ram", "min": "300MiB"}, ("g", "ram", "each", 300, None)),
        ({"id": "cpu", "max": 2, "perUnit": False}, ("g", "cpu", "any", 0, 2)),
        ({"id": "cpu", "min": 1, "perUnit": True}, ("g", "cpu", "each", 1, None)),
        ({"id": "cpu", "min": 1, "aggregate": True}, ("g", "cpu", "sum each", 1, None)),
        ({"type": "GPU", "max": 2, "perUnit": False}, ("g", "all device", "any", 0, 2)),
        ({"type": "disk", "min": 1}, ("g", "all disk", "each", 1024, None)),
        ({"type": "tape", "min": 1}, ("g", "tapes", "each", 1, None)),
        ({"id": "My_Key", "min": 1}, ("g", "my-key", "each", 1, None)),
        ({"type": "counter", "max": 3}, ("g", "all counter", "each", 0, 3)),
    ],
    ids=str,
)
def test_one(engine, constraint, expected):
    made = with_gpu(constraint)
    made["resources"] += [resource("tapes", 4, type="tape"), resource("My_Key", 4, type="key")]
    run(nested(made))
    assert told() == [expected]
    rows = everything()
    assert not run(nested(made)).changes_anything
    assert not run(as_json([export_engine(engine)])).changes_anything
    assert everything() == rows


def test_flat(engine):
    made = with_gpu({"id": "ram", "min": 1})
    del made["id"]
    run([{"socketPath": "/var/run/docker.sock", **made}])
    assert told() == [("g", "ram", "each", 1024, None)]
    assert fill(Environment.objects.get(), "paid", {"g": 1})["ram"] == 1024


def test_a_pool_gives_its_own_to_environments_that_have_none(engine):
    pool = [
        gpu("g", "GPU-rack-a-0", constraints=[{"id": "ram", "min": 1}, {"id": "cpu", "min": 1}]),
        resource("disk", 8, constraints=[{"type": "gpu", "max": 1, "perUnit": False}]),
    ]
    entries = {
        "inherits": [resource("g"), resource("disk", 1)],
        "own": [resource("g", constraints=[{"id": "ram", "min": 2}]), resource("disk", 1)],
        "none": [resource("g", constraints=[]), resource("disk", 1)],
        "without": [resource("disk", 1)],
    }
    offers = [
        offer(name, resources=[resource("cpu", 1), resource("ram", 2), *listed])
        for name, listed in entries.items()
    ]
    plan = run(nested(*offers, resources=pool))
    ceiling = ("disk", "all device", "any", 0, 1)
    assert told() == [
        *[("g", "ram", "each", 1024, None), ("g", "cpu", "each", 1, None), ceiling],
        *[("g", "ram", "each", 2048, None), ceiling],
        ceiling,
    ]
    dropped = "[0].resources[1].constraints[0]: dropped: the environment has no resource of type “gpu”."
    assert [str(note) for note in plan.notes if "constraint" in str(note)] == [dropped]


def test_a_change_is_told_and_what_is_gone_goes(engine):
    run(
        nested(
            with_gpu(
                {"id": "ram", "min": 1}, {"id": "ram", "max": 2, "perUnit": False}, {"id": "cpu", "min": 1}
            )
        )
    )
    kept = Constraint.objects.get(target__slug="ram", per_unit=False).pk
    version = Environment.objects.get().version
    plan = run(nested(with_gpu({"id": "ram", "min": 2}, {"id": "ram", "max": 2, "perUnit": False})))
    (change,) = [change for change in plan.changes if change.what == "changed"]
    assert set(change.details) == {
        "resources[g].constraints[ram].min: 1 → 2",
        "resources[g].constraints[cpu].min: 1 → nothing",
    }
    assert Environment.objects.get().version == version + 1
    assert told() == [("g", "ram", "each", 2048, None), ("g", "ram", "any", 0, 2048)]
    assert Constraint.objects.get(per_unit=False).pk == kept
    run(nested(offer()))
    assert told() == []


def test_two_on_one_target_become_one(engine):
    made = with_gpu({"id": "ram", "min": 1}, {"id": "ram", "min": 0.5, "max": 2}, {"id": "ram", "max": 1.5})
    run(nested(made))
    assert told() == [("g", "ram", "each", 1024, 1536)]
    refused(
        nested(with_gpu({"id": "ram", "min": 1}, {"id": "ram", "min": 1, "aggregate": True})),
        "[0].environments[0].resources[3].constraints[1]",
        "keep one of them",
    )


def test_per_unit_of_memory_is_per_gib_as_in_the_file(engine):
    made = offer()
    made["resources"][1]["constraints"] = [{"id": "cpu", "min": 1}, {"id": "disk", "min": 2}]
    run(nested(made))
    assert fill(Environment.objects.get(), "paid", {"ram": 2048}) == {"cpu": 2, "ram": 2048, "disk": 4096}
    assert not run(as_json([export_engine(engine)])).changes_anything


@pytest.mark.parametrize(
    ("constraint", "at", "words"),
    [
        ({"id": "tpu", "min": 1}, ".id", "There is no resource tpu; there are a, b, c, cpu, disk, g, ram."),
        ({"id": "ram", "type": "gpu", "min": 1}, ".id", "Found both; name one resource"),
        ({"min": 1}, ".id", "Found neither; name one resource"),
        ({"type": "tape", "min": 1}, ".type", "no resource of type “tape”"),
        ({"type": "x", "min": 1}, ".type", "“x” is some of the counters here"),
        ({"id": "ram", "min": 2, "max": 1}, ".min", "2048 is more than the max of 1024"),
        ({"id": "ram", "min": 3}, ".min", "Any g takes at least 3072 MiB of ram, at most 2048 MiB"),
        ({"id": "ram", "min": -1}, ".min", "Found -1"),
        ({"id": "ram", "min": "lots"}, ".min", "such as 512MiB"),
        ({"id": "cpu", "min": 1.5}, ".min", "Found 1.5; enter a whole number"),
        ({"id": "cpu", "min": "1"}, ".min", "Found “1”"),
        ({"id": "cpu", "min": 1, "perUnit": "no"}, ".perUnit", "true or false"),
        ({"id": "g", "min": 1}, ".id", "its own min and max"),
        ({"type": "gpu", "min": 1, "aggregate": True}, ".aggregate", "leave it off for a kind"),
        ("ram", "", "an object belongs here"),
    ],
    ids=str,
)
def test_refused_by_its_path(engine, constraint, at, words):
    made = with_gpu(constraint)
    made["resources"] += [resource("a", 1, type="x"), resource("b", 1, type="x"), resource("c", 1, type="y")]
    refused(nested(made), f"[0].environments[0].resources[3].constraints[0]{at}", words)


def test_what_says_nothing_is_noted(engine):
    made = with_gpu({"id": "ram"}, {"id": "cpu", "mins": 1, "min": 0}, free={"resources": [resource("cpu", max=1, constraints=[{"id": "ram", "min": 1}])]})  # fmt: skip
    notes = "\n".join(map(str, run(nested(made)).notes))
    at = "[0].environments[0].resources[3].constraints"
    assert f"{at}[0]: dropped: it has neither a min nor a max." in notes
    assert f"{at}[1].mins: unknown key, ignored (is min meant?)." in notes
    assert "free.resources[0].constraints: dropped: those of the environment's resources hold" in notes
    assert told() == []


def test_the_exported_form_is_the_files(engine):
    written = [
        {"id": "cpu", "min": 1},
        {"id": "ram", "max": "1500MiB", "perUnit": False},
        {"type": "gpu", "max": 2, "perUnit": False},
    ]
    run(nested(with_gpu(*written)))
    (exported,) = json.loads(as_json([export_engine(engine)]))
    (found,) = [one for one in exported["environments"][0]["resources"] if one["id"] == "g"]
    assert found["constraints"] == written
