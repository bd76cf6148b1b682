"""Totals above the physical size: an import keeps them, the offer is capped, by hand nobody makes one."""

import pytest
from django.core.exceptions import ValidationError

from compute_site.core.errors import CapacityUnavailable
from environments import editing
from environments.importing import as_json, export_engine
from environments.models import Environment, Host, Resource
from environments.reservations import fill, free_amounts
from environments.rules import check_environment, check_host, size_warnings, totals_above, warnings
from environments.setup import create_environment
from tests.environments.conftest import give_back, place_cores, take
from tests.environments.importing.conftest import amounts, nested, offer, refused, resource, run, told

SIZE = 16_384  # MiB of the host, less its reserve
LARGE = 500 * 1024


def large(name: str = "a", ram: int = 500, **more):
    made = offer(
        name, free={"resources": [resource("cpu", 1), resource("ram", max=ram), resource("disk", 1)]}
    )
    made["resources"][1] = resource("ram", ram, max=ram, **more)
    return made


def made_large(engine) -> Environment:
    run(nested(large()))
    return Environment.objects.get()


def test_it_is_kept_with_a_note_and_export_is_the_way_back(engine):
    plan = run(nested(large()))
    environment = Environment.objects.get()
    assert amounts(environment)["ram"] == (LARGE, 0, LARGE)
    assert environment.free_tier.resources.get(resource__slug="ram").max == LARGE
    noted = [note for note in told(plan) if "is more than rack-a has" in note]
    assert noted == [
        "[0].environments[0].resources[1].total: 512000 MiB is more than rack-a has without its reserve: it is kept,"
        " 16384 MiB are offered."
    ]
    assert not any("together offer" in note for note in told(plan))
    assert not run(nested(large())).changes_anything
    assert not run(as_json([export_engine(engine)])).changes_anything


def test_what_is_offered_is_capped(engine):
    use = free_amounts([environment := made_large(engine)])[environment.pk]["ram"]
    assert (use.total, use.offered, use.capped(use.max), use.free) == (LARGE, SIZE, SIZE, SIZE)
    assert (use.capped(use.free_tier_total or 0), use.free_tier_free) == (SIZE, SIZE)
    assert size_warnings([environment.pk])[0].startswith(
        "a: the total of 512000 MiB of ram is more than the host"
    )


@pytest.mark.parametrize("tier", ["paid", "free"])
def test_a_job_that_asks_more_than_the_host_has_is_refused_with_the_number(engine, tier):
    environment = made_large(engine)
    assert fill(environment, tier, {"ram": SIZE})["ram"] == SIZE
    with pytest.raises(ValidationError, match=f"ram: asked {SIZE + 1}, at most {SIZE} per job"):
        fill(environment, tier, {"ram": SIZE + 1})


def test_two_of_them_are_guarded_by_the_host(engine):
    run(nested(large("a"), large("b")))
    first, second = Environment.objects.order_by("slug")
    holder, _ = take(first, ram=SIZE - 100, disk=64)
    assert free_amounts([second])[second.pk]["ram"].free == 100
    with pytest.raises(CapacityUnavailable, match="needs 101 ram, 100 free"):
        take(second, ram=101, disk=64)
    give_back(holder)
    take(second, ram=SIZE, disk=64)
    assert "together offer 32768 MiB, the host has 16384 MiB" in " ".join(warnings(first))


def test_a_least_that_the_host_does_not_have_is_refused(engine):
    refused(
        nested(large(min=17)),
        "[0].environments[0].resources[1].min",
        "17408 MiB is more than rack-a has without its reserve (16384 MiB)",
    )
    free = large()
    free["free"]["resources"][1] = resource("ram", 20, min=20)
    refused(nested(free), "[0].environments[0].free.resources[1].min", "so no job could run")


def test_a_host_that_shrank_below_the_least_admits_nothing(engine, host):
    run(nested(large(min=8)))
    Host.objects.update(memory_mib=4096 + 1024)
    with pytest.raises(ValidationError, match="ram: a job gets at least 8192, there are 4096"):
        fill(Environment.objects.get(), "paid", {})


class TestByHand:
    def test_nobody_makes_one(self, engine):
        with pytest.raises(ValidationError) as error:
            create_environment(engine, "b", cpu=1, ram_mib=LARGE, disk_mib=64, prices={"cpu": 1})
        assert "more than the host's 16384 MiB" in error.value.message_dict["resources.ram.total"][0]
        assert not Environment.objects.exists()

    def test_it_stays_through_edits_of_other_things(self, engine, host):
        environment = made_large(engine)
        place_cores(environment, "2-4")
        editing.drain(environment)
        editing.resume(environment)
        editing.activate_engine(engine)
        check_host(host, totals_above([environment.pk]))
        assert amounts(environment)["ram"][0] == LARGE

    def test_another_number_that_is_too_large_is_refused(self, engine):
        environment = made_large(engine)
        kept = totals_above([environment.pk])
        Resource.objects.filter(slug="ram").update(total=LARGE + 1)
        with pytest.raises(ValidationError, match="512001 MiB is more than the host's 16384 MiB"):
            check_environment(environment, kept)

    def test_a_host_shrinks_only_to_what_fitted_before(self, engine, host):
        made_large(engine)
        run(nested(offer("b")))
        kept = totals_above(Environment.objects.values_list("pk", flat=True))
        Host.objects.update(disk_mib=3000 + 2000)
        with pytest.raises(ValidationError) as error:
            check_host(host, kept)
        assert set(error.value.message_dict) == {"disk_mib"}
