"""Constraints on the environment's page: added with new resources, changed, refused beside their field, removed."""

import pytest

from environments.models import Constraint, Environment
from environments.setup import save_constraint
from tests.environments.test_admin import ADD, add_rows, errors, fields_of, new, page, row

pytestmark = pytest.mark.usefixtures("unrendered")
PER_UNIT = {"per_unit": "on", "target_kind": "", "min": 0}


def told() -> list[tuple[str, str | None, str, bool, int, int | None]]:
    names = ("resource__slug", "target__slug", "target_kind", "per_unit", "min", "max")
    return list(Constraint.objects.order_by("pk").values_list(*names))


def test_with_resources_that_are_as_new(browser, engine, host):
    data = new(browser, engine)
    devices = [device.pk for device in host.devices.all()]
    gpu = {"kind": "device", "sharing": "shared_exclusive", "min": 0, "chosen_devices": devices}
    add_rows(data, "resources", slug="gpu", **gpu)
    add_rows(
        data,
        "constraints",
        **PER_UNIT | {"resource_slug": "gpu", "target_slug": "ram", "min": 8192, "max": ""},
    )
    add_rows(data, "constraints", resource_slug="cpu", target_kind="device", min=0, max=1)
    response = browser.post(ADD, data)
    assert response.status_code == 302, errors(response)
    assert told() == [("gpu", "ram", "", True, 8192, None), ("cpu", None, "device", False, 0, 1)]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"resource_slug": "tpu"}, "resource_slug", "There is no resource tpu; there are "),
        ({"target_slug": "tpu"}, "target_slug", "There is no resource tpu; there are "),
        ({"target_slug": ""}, "target_slug", "Found neither; name one resource as the target, or one kind."),
        ({"target_kind": "ram"}, "target_slug", "Found both; name one resource as the target, or one kind."),
        ({"target_slug": "cpu"}, "target_slug", "its own min and max"),
        ({"min": 0}, "min", "Neither a min nor a max; enter one, or remove the constraint."),
        ({"min": 9, "max": 8}, "min", "9 is more than the max of 8; lower it or raise the max."),
        ({"min": 20_000}, "min", "Any cpu takes at least 20000 MiB of ram, at most 16384 MiB may be per job"),
        ({"min": 0, "max": 1}, "max", "All cpu allows at most 4 MiB of ram, each job gets 64 MiB of it"),
        ({"min": "1.5"}, "min", "Found 1.5; enter a whole number, 0 or more."),
        ({"min": -1}, "min", "Found -1; enter a whole number, 0 or more."),
        ({"min": ""}, "min", "This field is required."),
    ],
    ids=str,
)
def test_refusals_stand_beside_their_field(browser, engine, changes, field, words):
    data = new(browser, engine)
    add_rows(
        data,
        "constraints",
        **PER_UNIT | {"resource_slug": "cpu", "target_slug": "ram", "min": 100, **changes},
    )
    found = errors(browser.post(ADD, data))
    assert words in " ".join(found.get(f"constraints.{field}", [])), found
    assert not Environment.objects.exists()


def test_change_and_remove(browser, environment):
    resources = {one.slug: one for one in environment.resources.all()}
    made = Constraint(environment=environment)
    save_constraint(made, resources, resource="gpu", target="licence", min=1)
    data = fields_of(browser.get(page(environment)))
    assert browser.post(page(environment), data).status_code == 302
    assert told() == [("gpu", "licence", "", True, 1, None)]
    data = fields_of(browser.get(page(environment))) | {
        "constraints-0-target_slug": "ram",
        "constraints-0-max": 4000,
    }
    assert browser.post(page(environment), data).status_code == 302
    assert told() == [("gpu", "ram", "", True, 1, 4000)]
    data = fields_of(browser.get(page(environment))) | {"constraints-0-DELETE": "on"}
    assert browser.post(page(environment), data).status_code == 302
    assert told() == []


def test_the_same_twice(browser, environment):
    data = fields_of(browser.get(page(environment)))
    for least in (1, 2):
        values = {"resource_slug": "gpu", "target_slug": "ram", "min": least}
        add_rows(data, "constraints", **PER_UNIT | values)
    found = errors(browser.post(page(environment), data))
    assert "There is such a constraint already; change that one." in str(found["__all__"])
    assert told() == []


def test_a_target_is_not_removed_under_its_constraint(browser, environment):
    resources = {one.slug: one for one in environment.resources.all()}
    save_constraint(Constraint(environment=environment), resources, resource="gpu", target="licence", min=1)
    data = fields_of(browser.get(page(environment)))
    response = browser.post(page(environment), data | {row(data, "licence") + "DELETE": "on"})
    assert "constraint each gpu: at least 1 of licence" in str(response.context_data["errors"])
    assert environment.resources.filter(slug="licence").exists()
    assert browser.post(page(environment), data | {row(data, "gpu") + "DELETE": "on"}).status_code == 302
    assert told() == []
