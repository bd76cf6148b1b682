"""An import changes what its user may change by hand, kind of row by kind of row; the same at every door."""

import json
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from compute_site.core.errors import NotPermitted
from environments.history import Author
from environments.importing import Choice, export_engine, import_configuration
from environments.models import Environment
from environments.reverting import revert
from tests.environments.doors_files import IMPORT
from tests.environments.importing.conftest import everything, fees, gpu, nested, offer, resource, run
from tests.environments.test_import_page import PAGE
from tests.factories import client_of

GATE = ("add_engine", "change_engine", "add_environment", "change_environment")
PLAIN = offer(access={"users": ["ada"]})


def staff(*names: str) -> Any:
    user = get_user_model().objects.create_user("ivan", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=[*GATE, *names]))
    return user


def by(user: Any) -> Author:
    return Author(user.get_username(), "import", user=user)


def told(user: Any, configuration: Any, **choice: Any) -> set[str]:
    """The permissions that are missing, by their short names; nothing was written."""
    before = everything()
    with pytest.raises(NotPermitted) as error:
        import_configuration(configuration, Choice(**choice), by(user))
    assert everything() == before
    assert str(error.value).endswith("or leave out what needs them. Nothing was written.")
    names, _, _ = (
        str(error.value).removeprefix("This takes permissions that you do not have: ").partition(". Ask")
    )
    return {name.removeprefix("environments.") for name in names.split(", ")}


def changed(**changes: Any) -> list[dict[str, Any]]:
    return nested(PLAIN | changes)


def more(*resources: Any) -> list[Any]:
    return [resource("cpu", 2), resource("ram", 2), resource("disk", 4), *resources]


FREE = {"resources": [resource("cpu", 1), resource("ram", 1), resource("disk", 1)]}
BOUND = [*more(), resource("licence", 2, type="counter", constraints=[{"id": "ram", "min": 1}])]


@pytest.mark.parametrize(
    ("configuration", "missing"),
    [
        (changed(fees=fees(cpu=2)), {"change_pricelist"}),
        (
            changed(fees=fees(cpu=1) | {"credit": [{"prices": [{"id": "cpu", "price": 1}]}]}),
            {"add_pricelist"},
        ),
        (
            changed(fees={"credit": [{"prices": [{"id": "cpu", "price": 1}]}]}),
            {"add_pricelist", "delete_pricelist"},
        ),
        (changed(access={"users": ["ada", "bob"]}), {"add_accessrule"}),
        (changed(access={}), {"delete_accessrule"}),
        (changed(free=FREE), {"add_freetier", "change_resource"}),
        (changed(resources=[*more()[:2], resource("disk", 5)]), {"change_resource"}),
        (changed(resources=BOUND), {"add_resource", "add_constraint"}),
        (changed(resources=more(gpu("gpu", "GPU-rack-a-0"))), {"add_resource"}),
        (changed(resources=more(gpu("gpu", "GPU-new"))), {"add_resource", "add_device"}),
        (nested(PLAIN, offer("b", cpuCores="4-5")), {"add_resource", "add_pricelist"}),
    ],
    ids=lambda value: ",".join(sorted(value)) if isinstance(value, set) else "",
)
def test_what_each_kind_of_row_takes(engine, configuration, missing):
    run(nested(PLAIN))
    user = staff()
    assert told(user, configuration) == missing
    assert told(user, configuration, dry_run=True) == missing
    user.user_permissions.add(*Permission.objects.filter(codename__in=missing))
    user = get_user_model().objects.get(pk=user.pk)
    assert import_configuration(configuration, Choice(), by(user)).applied


def test_a_devices_init_is_a_kind_of_its_own(engine, host):
    device: dict[str, Any] = {"id": "amd-0", "Devices": ["/dev/kfd"]}
    one = resource("gpu", type="gpu", platform="amd", init={"devices": [device]})
    run(changed(resources=more(one)))
    user = staff()
    with_group = resource("gpu", type="gpu", init={"devices": [device | {"GroupAdd": [44]}]})
    assert told(user, changed(resources=more(with_group))) == {"add_deviceinit"}
    without = resource("gpu", type="gpu", init={"devices": [device | {"Devices": ["/dev/kfd:r"]}]})
    assert told(user, changed(resources=more(without))) == {"add_deviceinit", "delete_deviceinit"}


def test_engine_and_environment_are_enough_for_what_is_theirs(engine):
    run(nested(PLAIN))
    user = staff()
    assert import_configuration(nested(PLAIN | {"description": "x"}), Choice(), by(user)).applied
    assert import_configuration(nested(PLAIN, imageRetentionDays=3), Choice(), by(user)).applied
    assert import_configuration(nested(PLAIN | {"cpuCores": "4-5"}), Choice(), by(user)).applied


def test_the_site_itself_needs_none_and_a_superuser_has_all(engine):
    assert run(nested(PLAIN)).applied
    user = get_user_model().objects.create_superuser("olga", password="x")
    assert import_configuration(changed(fees=fees(cpu=Decimal(3))), Choice(), by(user)).applied


def test_the_same_by_rest_and_on_the_page(engine, client):
    run(nested(PLAIN))
    user = staff()
    before = everything()
    configuration = changed(access={"users": ["bob"]})
    answer = client_of(user).post(IMPORT, {"configuration": configuration}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted")
    words = answer.json()["detail"]
    assert "environments.add_accessrule, environments.delete_accessrule. Ask whoever administers" in words
    client.force_login(user)
    page = client.post(PAGE, {"step": "plan", "text": json.dumps(configuration)})
    assert page.context_data["form"].errors["text"] == [words]
    assert everything() == before


def test_a_revert_takes_the_same(engine):
    run(nested(PLAIN))
    run(changed(access={"users": ["bob"]}))
    environment = Environment.objects.get()
    _, old = environment.edits.all()
    user, before = staff(), everything()
    with pytest.raises(NotPermitted) as error:
        revert(old, by(user))
    assert "add_accessrule, environments.delete_accessrule" in str(error.value)
    assert everything() == before


def test_the_benchmarks_rows_follow_its_switch(engine, settings):
    settings.BENCHMARK_USERS, settings.BENCHMARK_SECONDS = ["ada"], 60
    settings.BENCHMARK_CURRENCY, settings.BENCHMARK_CORE_PRICE = "credit", "0"
    run(nested(PLAIN))
    user = staff()
    assert import_configuration(nested(PLAIN, enableBenchmark=True), Choice(), by(user)).applied
    assert export_engine(engine)["environments"]
    assert Environment.objects.filter(benchmark=True).exists()
