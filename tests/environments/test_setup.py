from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from environments.models import Core, Engine, Environment, Host
from environments.setup import create_environment
from tests.environments.conftest import make_engine

PLAIN: dict[str, Any] = {"cpu": 2, "ram_mib": 1000, "disk_mib": 1000, "prices": {"cpu": Decimal("0.5")}}


def test_whole(environment):
    totals = dict(environment.resources.values_list("slug", "total"))
    assert totals == {"cpu": 4, "ram": 8192, "disk": 50_000, "gpu": 2, "licence": 3}
    assert environment.resources.get(slug="gpu").sharing == "shared_exclusive"
    assert environment.free_tier.max_jobs == 2
    assert environment.version == 1


def test_not_named_takes_what_is_left(engine, host):
    create_environment(engine, "a", **PLAIN)
    rest = create_environment(engine, "b", disk_mib=None, free={})
    assert dict(rest.resources.values_list("slug", "total")) == {"cpu": 6, "ram": 16_384, "disk": 100_000}
    assert not Core.objects.filter(environment=None).exists()
    with pytest.raises(ValidationError, match="No core of rack-a is left"):
        create_environment(engine, "c", disk_mib=1, free={})


def test_limits_and_fields(engine):
    made = create_environment(engine, "a", **PLAIN, limits={"ram": (100, 500)}, max_jobs=3, description="x")
    assert made.resources.values_list("min", "max").get(slug="ram") == (100, 500)
    assert (made.max_jobs, made.description) == (3, "x")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"cpu": 9}, "cores"),
        ({"cpu": "7-8"}, "cores"),
        ({"cpu": 1.5}, "cores"),
        ({"cpu": True}, "cores"),
        ({"cpu": -1}, "cores"),
        ({"ram_mib": "1000"}, "resources.ram.total"),
        ({"ram_mib": 99_999}, "resources.ram.total"),
        ({"ram_mib": -1}, "resources.ram.total"),
        ({"disk_mib": 0}, "resources.disk.total"),
        ({"prices": None}, "price_lists"),
        ({"prices": {"gpu": 1}}, "prices.gpu"),
        ({"prices": {"cpu": Decimal("NaN")}}, "prices.cpu.per_minute"),
        ({"prices": {"cpu": 0.5}}, "prices.cpu.per_minute"),
        ({"free": {"cpu": 3}}, "free_tier.resources.cpu.total"),
        ({"free": {"gpu": 3}}, "free_tier.resources.gpu"),
        ({"free": {}, "free_fields": {"storage_expiry": 1}}, "free_tier.storage_expiry"),
        ({"devices": {"gpu": ["GPU-none"]}}, "resources.gpu.devices"),
        ({"devices": {"gpu": ["GPU-rack-a-0", "GPU-rack-a-0"]}}, "resources.gpu.devices"),
        ({"limits": {"ram": (5, 4)}}, "resources.ram.min"),
        ({"max_job_duration": 10**6}, "storage_expiry"),
        ({"slug": "Bad slug"}, "slug"),
    ],
    ids=str,
)
def test_refused_whole(engine, changes, path):
    arguments = {"slug": "a", **PLAIN, **changes}
    with pytest.raises(ValidationError) as error:
        create_environment(engine, **arguments)
    assert path in error.value.message_dict, error.value.message_dict
    assert not Environment.objects.exists()
    assert not Core.objects.exclude(environment=None).exists()


def test_an_undetected_host_offers_nothing(db):
    bare = make_engine(Host.objects.create(name="bare"))
    with pytest.raises(ValidationError):
        create_environment(bare, "a", disk_mib=None, free={})


def test_fleet_engine(db):
    fleet = Engine.objects.create(name="fleet", kind="fleet")
    with pytest.raises(ValidationError, match="no host"):
        create_environment(fleet, "a", **PLAIN | {"cpu": None})
    assert not fleet.environments.exists()
    with pytest.raises(ValidationError) as error:
        create_environment(fleet, "a", **PLAIN, enable_network=True)
    assert error.value.message_dict == {
        "enable_network": ["Found on; remote workers give jobs no network: leave it off."]
    }
    assert not fleet.environments.exists()
    offered = create_environment(fleet, "a", **PLAIN)
    assert offered.engine.host is None
