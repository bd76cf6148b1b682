"""The import over rows that are there already: what it changes, keeps, retires and refuses."""

import json
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from environments.editing import retire
from environments.importing import as_json, export_engine, export_environment, import_configuration
from environments.models import Device, Environment, Host, Price, Resource, Sharing
from tests.environments.conftest import give_back, take
from tests.environments.importing.conftest import (
    TOKEN,
    amounts,
    cores,
    fees,
    gpu,
    nested,
    offer,
    prices,
    refused,
    resource,
    run,
    told,
    whats,
)


def test_units_and_prices(engine):
    resources = [resource("cpu", 2, min=1), resource("ram", "512MiB"), resource("disk", 0.5, max="256MiB")]
    fee = fees(cpu=0.1, ram=1.5, disk=0)
    run(nested({"id": "a", "resources": resources, "fees": fee}))
    made = Environment.objects.get()
    assert amounts(made) == {"cpu": (2, 1, 2), "ram": (512, 0, 512), "disk": (512, 0, 256)}
    assert prices(made) == {
        (f"1:{TOKEN}", "cpu"): Decimal("0.1"),
        (f"1:{TOKEN}", "ram"): Decimal("1.5") / 1024,
        (f"1:{TOKEN}", "disk"): Decimal(0),
    }


def test_a_network_is_kept_and_written_and_silence_takes_it_away(engine):
    run(nested(offer(enableNetwork=True)))
    environment = Environment.objects.get()
    assert environment.enable_network
    assert export_engine(engine)["environments"][0]["enableNetwork"] is True
    assert not run(as_json([export_engine(engine)])).changes_anything
    assert run(nested(offer())).changes_anything
    environment.refresh_from_db()
    assert not environment.enable_network
    assert "enableNetwork" not in export_engine(engine)["environments"][0]
    refused(nested(offer(enableNetwork="yes")), "[0].environments[0].enableNetwork")


def test_a_network_of_a_whole_engine_is_a_note(engine):
    for value in (True, False):
        plan = run(nested(offer(), enableNetwork=value))
        assert ("[0].enableNetwork", "stands on the engine; it belongs to each environment.") in [
            (note.path, note.message) for note in plan.notes
        ]
    assert not Environment.objects.get().enable_network
    refused(nested(offer(), enableNetwork=1), "[0].enableNetwork")


def test_every_digit_of_a_price_is_kept(engine):
    text = json.dumps(nested(offer())).replace('"price": 1}', '"price": 12345678901.123456789012345678}')
    run(text)
    (price,) = prices(Environment.objects.get()).values()
    assert price == Decimal("12345678901.123456789012345678")
    assert "12345678901.123456789012345678" in as_json([export_engine(engine)])


def test_labels_go_out_and_come_back_and_silence_keeps_them(engine):
    run(nested(offer(labels={"gpu": "a100"})))
    environment = Environment.objects.get()
    assert environment.labels == {"gpu": "a100"}
    assert export_engine(engine)["environments"][0]["labels"] == {"gpu": "a100"}
    assert not run(nested(offer(), imageRetentionDays=7)).changes_anything
    run(nested(offer(labels={"gpu": "h100"})))
    environment.refresh_from_db()
    assert environment.labels == {"gpu": "h100"}
    refused(nested(offer(labels={"gpu": 1})), "[0].environments[0].labels.gpu")


def test_the_free_part_is_never_unlimited(engine):
    free = {
        "resources": [resource("cpu", max=1), resource("ram", 2, max=1), resource("disk")],
        "maxJobDuration": 30,
    }
    plan = run(nested(offer(free=free)))
    tier = Environment.objects.get().free_tier
    parts = {part.resource.slug: (part.total, part.max) for part in tier.resources.select_related("resource")}
    assert parts == {"cpu": (1, 1), "ram": (2048, 1024), "disk": (4096, 4096)}
    assert (tier.min_job_duration, tier.max_job_duration) == (30, 30)
    assert any("free jobs may use all of disk" in note for note in told(plan))


def test_a_change_is_told_value_by_value_and_makes_open_forms_stale(engine):
    run(nested(offer()))
    version = Environment.objects.get().version
    changed = offer(description="faster", maxJobs=3)
    changed["resources"][1] = resource("ram", 3, max=2)
    plan = run(nested(changed))
    (change,) = [change for change in plan.changes if change.what == "changed"]
    assert set(change.details) == {
        "description: nothing → faster",
        "maxJobs: nothing → 3",
        "resources[ram].total: 2 → 3",
    }
    made = Environment.objects.get()
    assert made.version == version + 1
    assert not run(nested(changed)).changes_anything
    assert Environment.objects.get().version == version + 1
    run(nested(offer()))
    made.refresh_from_db()
    assert (made.description, made.max_jobs) == ("", None)


def test_what_the_file_no_longer_has_goes(engine):
    full = offer(
        free={"resources": [resource("cpu", max=1)]}, access={"users": ["ada"], "addresses": ["0xAB"]}
    )
    full["resources"] += [gpu("g", "GPU-rack-a-0"), resource("licence", 3, type="licence")]
    run(nested(full))
    made = Environment.objects.get()
    assert amounts(made)["licence"] == (3, 0, 3)
    assert set(made.access_rules.values_list("tier", "kind", "value")) == {
        ("paid", "user", "ada"),
        ("paid", "address", "0xab"),
    }
    run(nested(offer()))
    made = Environment.objects.get()
    assert set(amounts(made)) == {"cpu", "ram", "disk"}
    assert not hasattr(made, "free_tier")
    assert not made.access_rules.exists()
    assert Device.objects.count() == 2


def test_a_resource_that_a_job_once_had_stays_as_a_row_of_nothing(engine):
    full = offer()
    full["resources"] += [gpu("g", "GPU-rack-a-0")]
    run(nested(full))
    made = Environment.objects.get()
    holder, _ = take(made, g=1)
    refused(
        nested(offer()),
        "[0].environments[0].resources.g.init.deviceRequests.DeviceIDs",
        "held by a running job",
    )
    give_back(holder)
    run(nested(offer()))
    assert amounts(made)["g"] == (0, 0, 0)
    assert not run(nested(offer())).changes_anything
    run(nested(full))
    assert amounts(made)["g"] == (1, 0, 1)


def test_running_jobs_keep_what_they_hold(engine):
    run(nested(offer()))
    made = Environment.objects.get()
    holder, _claim = take(made, cpu=2, ram=2048)
    less = offer()
    less["resources"] = [resource("cpu", 2), resource("ram", 1), resource("disk", 4)]
    refused(nested(less), "[0].environments[0].resources[1].total", "2048 are in use, 1024 would be left")
    refused(nested(offer(cpuCores=[6, 7])), "[0].environments[0].cpuCores", "are held by running jobs")
    refused(nested(offer("b")), "[0]", "1 jobs still hold resources", replace=True)
    give_back(holder)
    run(nested(offer(cpuCores=[6, 7])))
    assert cores("a") == [6, 7]


def test_a_pool_is_referred_to(engine):
    pool = [gpu("g", "GPU-rack-a-0", "GPU-rack-a-1"), resource("cpu", cpuList="2-5"), resource("disk", 8)]
    one = {
        "id": "one",
        "fees": fees(g=2),
        "resources": [resource("cpu", 2), resource("g", max=1), resource("disk", 3)],
    }
    two = {"id": "two", "fees": fees(cpu=1), "resources": [resource("cpu", 2), resource("g")]}
    run(nested(one, two, resources=pool))
    assert (cores("one"), cores("two")) == ([2, 3], [4, 5])
    assert amounts(Environment.objects.get(slug="one"))["g"] == (2, 0, 1)
    assert amounts(Environment.objects.get(slug="two"))["disk"] == (100_000, 0, 100_000)
    assert Resource.objects.filter(slug="g", sharing=Sharing.SHARED_EXCLUSIVE).count() == 2


def test_other_environments_are_left_alone_unless_the_file_replaces(engine):
    run(nested(offer("a"), offer("b")))
    assert whats(run(nested(offer("a")))) == {"local": "kept", "local/b": "left alone", "local/a": "kept"}
    assert whats(run(nested(offer("a")), replace=True))["local/b"] == "retired"
    assert Environment.objects.get(slug="b").state == "retired"
    refused(nested(offer("b")), "[0].environments[0].id", "retired for good")


def test_ids_are_spelt_as_here(engine):
    spelt = offer("My_Env")
    spelt["resources"].append(gpu("GPU_0", "GPU-rack-a-0"))
    spelt["fees"] = fees(GPU_0=1)
    plan = run(nested(spelt))
    made = Environment.objects.get(slug="my-env")
    assert "gpu-0" in amounts(made)
    assert list(prices(made)) == [(f"1:{TOKEN}", "gpu-0")]
    assert any("“GPU_0” is called gpu-0 here" in note for note in told(plan))


class TestDevices:
    def test_an_index_is_refused_once_the_host_was_detected(self, engine):
        Device.objects.update(seen_at="2026-01-01T00:00Z")
        indexed = offer()
        indexed["resources"].append(gpu("g", "0"))
        path = "[0].environments[0].resources[3].init.deviceRequests.DeviceIDs"
        refused(nested(indexed), path, "0 is an index, which changes")

    def test_of_another_host(self, engine):
        other = Host.objects.create(name="other", cpu_count=1)
        Device.objects.create(host=other, uuid="GPU-x")
        far = offer()
        far["resources"].append(gpu("g", "GPU-x"))
        refused(
            nested(far),
            "[0].environments[0].resources[3].init.deviceRequests.DeviceIDs",
            "is on host other, the environment on rack-a",
        )

    def test_twice_in_one_environment(self, engine):
        double = offer()
        double["resources"] += [gpu("g", "GPU-1"), gpu("h", "GPU-1")]
        path = "[0].environments[0].resources[4].init.deviceRequests.DeviceIDs"
        refused(nested(double), path, "GPU-1 is in g of this environment already")
        double["resources"][3:] = [gpu("g", "GPU-1", "GPU-1")]
        refused(
            nested(double), "[0].environments[0].resources[3].init.deviceRequests.DeviceIDs[1]", "named twice"
        )


def test_access_lists_of_either_kind_come_back_as_they_were(engine):
    access = {
        "addresses": ["0xAB"],
        "accessLists": [{"1": ["0xC0"]}],
        "lists": ["Partners"],
        "users": ["ada"],
    }
    run(nested(offer(access=access)))
    exported = export_environment(Environment.objects.get())
    assert exported["access"] == {
        "addresses": ["0xab"],
        "accessLists": [{"1": ["0xc0"]}],
        "lists": ["partners"],
        "users": ["ada"],
    }
    assert not import_configuration(nested(offer(access=exported["access"]))).changes_anything
    with pytest.raises(ValidationError, match="belongs into accessLists"):
        run(nested(offer(access={"lists": ["1:0xC0"]})))


def test_a_price_list_without_a_price_goes_in_by_no_file(engine):
    """Only a row that was written past every rule is one; what an export says of it is refused as well."""
    run(nested(offer()))
    Price.objects.all().delete()
    refused(as_json([export_engine(engine)]), "[0].environments[0].fees.1[0].prices", "Found no price")
    refused(
        nested(offer(fees={"credit": [{}]})), "[0].environments[0].fees.credit[0].prices", "Found no price"
    )


def test_a_price_and_a_free_part_that_the_file_no_longer_has_go(engine):
    parts = [resource(name, 1) for name in ("cpu", "ram", "disk")]
    run(nested(offer(fees=fees(cpu=1, ram=1), free={"resources": parts})))
    run(nested(offer(fees=fees(cpu=1), free={"resources": parts[:2]})))
    environment = Environment.objects.get()
    assert [slug for _, slug in prices(environment)] == ["cpu"]
    assert set(environment.free_tier.resources.values_list("resource__slug", flat=True)) == {"cpu", "ram"}


def test_what_was_retired_does_not_come_back_by_a_file(engine):
    run(nested(offer()))
    retire(Environment.objects.get())
    refused(nested(offer()), "[0].environments[0].id", "is retired for good; give the new one another id.")
