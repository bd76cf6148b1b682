"""What may stand in a constraint: through `full_clean` or the check, through every way of writing it, and raw."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import RestrictedError

from compute_site.core.db import constraint_name
from environments.bounds import Bound, Limits
from environments.constraint_rules import hopeless
from environments.editing import edited
from environments.models import Constraint, Environment, FreeResource, Resource
from environments.rules import check_environment, warnings
from environments.setup import create_environment, save_constraint
from tests.environments.conftest import make_engine
from tests.environments.test_rules import broken, found_by_check, found_by_clean


def add(environment: Environment, resource: str = "gpu", target: str = "ram", **values: Any) -> Constraint:
    resources = {row.slug: row for row in environment.resources.all()}
    row = Constraint(environment=environment)
    return save_constraint(row, resources, resource=resource, target=target, **values)


@pytest.mark.parametrize(
    ("changes", "field", "words", "constraint"),
    [
        ({"min": 10, "max": 5}, "min", "10 is more than the max of 5", "constraint_min_max_ordered"),
        ({"min": 0, "max": None}, "min", "Neither a min nor a max", "constraint_says_something"),
        ({"min": -1}, "min", "Found -1; enter a whole number", "environments_constraint_min_check"),
        ({"max": -1}, "max", "Found -1; enter a whole number", "constraint_min_max_ordered"),
        ({"min": "8"}, "min", "Found “8”; enter a whole number, 0 or more.", None),
        ({"max": 1.5}, "max", "Found 1.5", None),
        ({"min": True}, "min", "Found true", None),
        ({"min": 2**63}, "min", "enter at most", None),
        ({"target": None}, "target", "Found neither; name one resource", "constraint_one_target"),
        ({"target_kind": "ram"}, "target", "Found both; name one resource", "constraint_one_target"),
        (
            {"target": None, "target_kind": "tape"},
            "target_kind",
            "not a valid choice",
            "constraint_kind_known",
        ),
        (
            {"target": None, "target_kind": "ram", "aggregate": True},
            "aggregate",
            "leave it off for a kind",
            "constraint_aggregate_of_one_resource",
        ),
    ],
    ids=str,
)
def test_one_row(environment, changes, field, words, constraint):
    row = add(environment, min=100, max=200)
    assert words in " ".join(found_by_clean(row, **changes)[field])
    if constraint:
        assert broken(Constraint.objects.all(), **changes) == constraint
    assert Constraint.objects.values_list("min", "max", "target__slug").get() == (100, 200, "ram")


def test_another_resource_of_the_same_environment(environment, host):
    row = add(environment, min=1)
    assert "itself; its own min and max" in str(found_by_clean(row, target=row.resource)["target"])
    rows = Constraint.objects.all()
    assert broken(rows, target=row.resource) == "constraint_target_is_another"
    other = create_environment(
        make_engine(host, "other"), "b", cpu=1, ram_mib=64, disk_mib=1, prices={"cpu": 1}
    )
    stranger = other.resources.get(slug="ram")
    assert found_by_clean(row, target=stranger)["target"] == ["local/main has no such resource."]
    row.refresh_from_db()
    assert found_by_clean(row, resource=stranger)["resource"] == ["local/main has no such resource."]


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"target": "ram"}, "constraint_once_per_target"),
        ({"target": "", "target_kind": "cpu"}, "constraint_once_per_target_kind"),
    ],
)
def test_one_for_each_target(environment, values, constraint):
    row = add(environment, min=1, **values)
    with pytest.raises(ValidationError, match="There is such a constraint already") as error:
        add(environment, min=2, **values)
    assert list(error.value.message_dict) == [f"constraints.gpu.{values['target'] or 'cpu'}.per_unit"]
    row.pk = None
    with pytest.raises(IntegrityError) as raw, transaction.atomic():
        Constraint.objects.bulk_create([row])
    assert constraint_name(raw.value) == constraint
    add(environment, min=3, per_unit=False, **values)
    assert Constraint.objects.count() == 2


def test_a_target_cannot_go_but_the_asked_resource_and_the_environment_can(environment):
    add(environment, target="licence", min=1)
    with pytest.raises(RestrictedError):
        environment.resources.get(slug="licence").delete()
    assert Constraint.objects.count() == 1
    environment.resources.get(slug="gpu").delete()
    assert not Constraint.objects.exists()
    add(environment, resource="cpu", target="licence", max=1)
    environment.cores.update(environment=None)
    environment.delete()
    assert not Constraint.objects.exists()


@pytest.mark.parametrize(
    ("constraint", "path", "words"),
    [
        ({"resource": "tpu", "target": "ram", "min": 1}, "tpu.ram.per_unit.resource", "no resource tpu; there are cpu,"),
        ({"resource": "gpu", "target": "tpu", "min": 1}, "gpu.tpu.per_unit.target", "no resource tpu; there are cpu,"),
        ({"resource": "gpu", "target": "ram", "min": 2, "max": 1}, "gpu.ram.per_unit.min", "more than the max of 1"),
        ({"resource": "gpu", "target": "ram", "min": 8193}, "gpu.ram.per_unit.min",
         "Any gpu takes at least 8193 MiB of ram, at most 8192 MiB may be per job; lower it or raise the max of ram."),
        ({"resource": "cpu", "target_kind": "device", "per_unit": False, "min": 3}, "cpu.device.absolute.min",
         "Any cpu takes at least 3 of kind device, at most 2 may be per job"),
        ({"resource": "cpu", "target": "ram", "max": 15}, "cpu.ram.per_unit.max",
         "All cpu allows at most 60 MiB of ram, each job gets 64 MiB of it; raise it or lower the min of ram."),
    ],
    ids=str,
)  # fmt: skip
def test_refused_with_the_whole_environment(engine, constraint, path, words):
    with pytest.raises(ValidationError) as error:
        create_environment(
            engine,
            "a",
            cpu=4,
            ram_mib=8192,
            disk_mib=1000,
            devices={"gpu": ["GPU-rack-a-0", "GPU-rack-a-1"]},
            prices={"cpu": 1},
            constraints=[constraint],
        )
    assert words in " ".join(error.value.message_dict[f"constraints.{path}"]), error.value.message_dict
    assert not Environment.objects.exists()


def test_an_edit_of_a_resource_keeps_its_constraints_possible(environment):
    add(environment, min=2000)
    check_environment(environment)
    with pytest.raises(ValidationError) as error, edited(environment):
        environment.resources.filter(slug="ram").update(max=1999)
    assert list(error.value.message_dict) == ["constraints.gpu.ram.per_unit.min"]
    assert Resource.objects.get(slug="ram").max == 8192


def test_circles_are_refused_and_those_that_settle_are_not(environment):
    add(environment, "cpu", "gpu", min=1)
    add(environment, "gpu", "cpu", min=1)
    check_environment(environment)
    row = Constraint.objects.get(resource__slug="cpu")
    Constraint.objects.filter(pk=row.pk).update(min=2)
    add(environment, "gpu", "disk", min=5)
    found = found_by_check(environment)
    assert set(found) == {"constraints.cpu.gpu.per_unit.min", "constraints.gpu.cpu.per_unit.min"}
    expected = "More cpu takes more gpu, and that takes more cpu than there was: floors without end; lower one of them"
    assert expected in found["constraints.cpu.gpu.per_unit.min"][0]
    Constraint.objects.filter(pk=row.pk).update(per_unit=False)
    check_environment(environment)


@pytest.mark.parametrize(
    ("bounds", "paths"),
    [
        ([Bound("a", "b", min=3), Bound("b", "c", min=1), Bound("c", "a", min=1)], 3),
        ([Bound("a", "b", min=3), Bound("b", "c", min=1), Bound("c", "a", per_unit=False, min=1)], 0),
        ([Bound("a", "b", min=1), Bound("b", "c", min=1), Bound("c", "a", min=1)], 0),
        ([Bound("ram", "a", min=1), Bound("a", "ram", min=1024)], 0),
        ([Bound("ram", "a", min=1), Bound("a", "ram", min=1025)], 2),
        ([Bound("a", "ram", True, min=2), Bound("ram", "a", min=513)], 2),
        # Which counter a floor on all of them raises is only known with the request.
        ([Bound("ram", "counter", True, min=2000), Bound("a", "ram", min=1000)], 0),
        ([Bound("a", "b", max=1), Bound("b", "a", max=5)], 0),
        ([Bound("unknown", "a", min=5), Bound("a", "unknown", max=5)], 0),
    ],
    ids=str,
)
def test_circles(bounds, paths):
    limits = {slug: Limits(slug, "counter", 0, 10**6) for slug in "abc"}
    limits["ram"] = Limits("ram", "ram", 0, 10**6)
    assert len({bound.path for bound, _, _ in hopeless(bounds, limits)}) == paths


def test_what_no_free_job_can_have_is_a_warning(environment):
    add(environment, min=2049)
    assert warnings(environment) == []  # the free tier has no gpu
    FreeResource.objects.create(
        free_tier=environment.free_tier, resource=environment.resources.get(slug="gpu"), total=1, max=1
    )
    expected = (
        "No free job can have gpu: Any gpu takes at least 2049 MiB of ram, at most 2048 MiB may be per job"
    )
    assert [text.split(";")[0] for text in warnings(environment)] == [expected]


def test_a_row_in_words(environment):
    assert str(add(environment, min=5)) == "each gpu: at least 5 of ram"
    assert (
        str(add(environment, target="", target_kind="cpu", per_unit=False, max=5))
        == "any gpu: at least 0, at most 5 of cpu"
    )
