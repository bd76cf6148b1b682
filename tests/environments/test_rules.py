"""Every rule through `full_clean` or the check, and raw: the database's own constraint, by name."""

from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from compute_site.core.db import constraint_name
from compute_site.core.models import save_clean
from environments.cpuset import format_cores, parse_cores, unique_cores
from environments.editing import retire
from environments.models import (
    Core,
    Engine,
    Environment,
    FreeResource,
    FreeTier,
    Host,
    Price,
    PriceList,
    Resource,
    ResourceDevice,
)
from environments.rules import check_environment, check_host, warnings
from environments.setup import create_environment
from tests.environments.conftest import make_engine, make_host, take


def found_by_clean(instance, **changes) -> dict[str, list[str]]:
    for name, value in changes.items():
        setattr(instance, name, value)
    with pytest.raises(ValidationError) as error:
        instance.full_clean()
    return error.value.message_dict


def found_by_check(environment) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as error:
        check_environment(environment)
    return error.value.message_dict


def broken(rows, **values) -> str:
    """The constraint that refuses this raw update."""
    with pytest.raises(IntegrityError) as error, transaction.atomic():
        rows.update(**values)
    return constraint_name(error.value)


class TestOneRow:
    @pytest.mark.parametrize(
        ("changes", "field", "words", "constraint"),
        [
            ({"storage_expiry": 3599}, "storage_expiry", "3599 s is shorter than max_job_duration (3600 s)",
             "environment_expiry_covers_duration"),
            ({"min_job_duration": 3601}, "min_job_duration", "3601 s is longer than max_job_duration (3600 s)",
             "environment_durations_ordered"),
            ({"min_job_duration": 0}, "min_job_duration", "Found 0", "environment_durations_positive"),
            ({"max_queue_wait": 0}, "max_queue_wait", "Found 0", "environment_durations_positive"),
            ({"state": "gone"}, "state", "not a valid choice", "environment_state_known"),
            ({"max_jobs": -1}, "max_jobs", "Found -1; enter a whole number", "environments_environment_max_jobs_check"),
            ({"max_job_duration": "60"}, "max_job_duration", "Found “60”; enter a whole number, 0 or more.", None),
            ({"max_job_duration": 60.5}, "max_job_duration", "Found 60.5", None),
            ({"max_jobs": True}, "max_jobs", "Found true", None),
            ({"max_jobs": 2**70}, "max_jobs", "enter at most", None),
            ({"slug": "Main"}, "slug", "lower-case", None),
            ({"slug": "main\n"}, "slug", "lower-case", None),
        ],
        ids=str,
    )  # fmt: skip
    def test_environment(self, environment, changes, field, words, constraint):
        assert words in " ".join(found_by_clean(Environment.objects.get(), **changes)[field])
        if constraint:
            assert broken(Environment.objects.filter(pk=environment.pk), **changes) == constraint

    def test_expiry_may_equal_the_duration(self, environment):
        environment.storage_expiry = environment.max_job_duration
        environment.full_clean()

    def test_environment_slug_once_and_engine_for_good(self, environment, host):
        twin = Environment(engine=environment.engine, slug="main")
        assert "already has an environment" in str(found_by_clean(twin))
        other = make_engine(host, "other")
        assert "stays on its engine" in str(found_by_clean(environment, engine=other)["engine"])
        second = create_environment(other, "main", cpu=1, disk_mib=1, ram_mib=64, prices={"cpu": 1})
        rows = Environment.objects.filter(pk=second.pk)
        assert (
            broken(rows, engine=environment.host.engines.get(name="local"))
            == "environment_slug_once_per_engine"
        )

    @pytest.mark.parametrize(
        ("slug", "changes", "field", "words", "constraint"),
        [
            (
                "ram",
                {"max": 9000},
                "max",
                "9000 is more than the total of 8192",
                "resource_min_max_total_ordered",
            ),
            (
                "ram",
                {"min": 100, "max": 50},
                "min",
                "100 is more than the max of 50",
                "resource_min_max_total_ordered",
            ),
            ("ram", {"min": -1}, "min", "Found -1; enter a whole number", "environments_resource_min_check"),
            (
                "ram",
                {"total": -5},
                "total",
                "Found -5; enter a whole number, 0 or more.",
                "environments_resource_total_check",
            ),
            ("disk", {"total": 0, "max": 0}, "total", "an environment needs disk", "resource_disk_positive"),
            (
                "ram",
                {"sharing": "shared_exclusive"},
                "sharing",
                "exclusive",
                "resource_cpu_ram_disk_exclusive",
            ),
            ("gpu", {"sharing": "mine"}, "sharing", "not a valid choice", "resource_sharing_known"),
            ("ram", {"kind": "tape"}, "kind", "not a valid choice", "resource_kind_known"),
            ("ram", {"kind": "counter"}, "kind", "cannot change", None),
            ("ram", {"slug": "cpu"}, "kind", "Found “ram”, which contradicts the id cpu.", None),
            ("gpu", {"slug": "disk"}, "kind", "Found “device”, which contradicts the id disk.", None),
            ("ram", {"slug": "disk"}, "__all__", "already", "resource_slug_once_per_environment"),
            ("ram", {"total": "8192"}, "total", "Found “8192”", None),
            ("cpu", {"total": 1.5}, "total", "Found 1.5", None),
            ("cpu", {"total": float("nan")}, "total", "Found nan", None),
        ],
        ids=str,
    )
    def test_resource(self, environment, slug, changes, field, words, constraint):
        assert words in " ".join(found_by_clean(environment.resources.get(slug=slug), **changes)[field])
        if constraint:
            assert broken(environment.resources.filter(slug=slug), **changes) == constraint

    def test_one_cpu_ram_and_disk(self, environment):
        twin = Resource(environment=environment, slug="more", kind="ram", total=1)
        assert "at most one cpu, one ram and one disk" in str(found_by_clean(twin))
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            Resource.objects.bulk_create([twin])
        assert constraint_name(error.value) == "resource_cpu_ram_disk_once_per_environment"

    @pytest.mark.parametrize(
        ("changes", "field", "words", "constraint"),
        [
            ({"total": 8193}, "total", "8193 is more than the resource's total of 8192", None),
            (
                {"max": 3000},
                "max",
                "3000 is more than the total of 2048",
                "free_resource_min_max_total_ordered",
            ),
            (
                {"min": 3000},
                "min",
                "3000 is more than the max of 2048",
                "free_resource_min_max_total_ordered",
            ),
        ],
    )
    def test_free_part(self, environment, changes, field, words, constraint):
        part = FreeResource.objects.get(resource__slug="ram")
        assert words in " ".join(found_by_clean(part, **changes)[field])
        if constraint:
            assert broken(FreeResource.objects.filter(pk=part.pk), **changes) == constraint

    def test_free_max_is_the_free_total_never_unlimited(self, environment):
        assert FreeResource.objects.get(resource__slug="ram").max == 2048

    @pytest.mark.parametrize(
        ("changes", "field", "constraint"),
        [
            ({"storage_expiry": 10}, "storage_expiry", "free_tier_expiry_covers_duration"),
            ({"min_job_duration": 4000}, "min_job_duration", "free_tier_durations_ordered"),
            ({"min_job_duration": 0}, "min_job_duration", "free_tier_durations_ordered"),
        ],
    )
    def test_free_tier(self, environment, changes, field, constraint):
        assert field in found_by_clean(FreeTier.objects.get(), **changes)
        assert broken(FreeTier.objects.all(), **changes) == constraint

    @pytest.mark.parametrize(
        "price",
        [
            Decimal("-0.1"),
            Decimal("NaN"),
            Decimal("Infinity"),
            Decimal("1e-19"),
            Decimal("1e30"),
            "1",
            0.5,
            True,
        ],
    )
    def test_price(self, environment, price):
        assert "per_minute" in found_by_clean(Price.objects.get(), per_minute=price)

    @pytest.mark.parametrize("price", ["-0.1", "NaN"])
    def test_price_raw(self, environment, price):
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            _raw_price(price)
        assert constraint_name(error.value) == "price_not_negative"

    def test_price_of_another_environments_resource(self, environment, host):
        other = create_environment(
            make_engine(host, "b"), "b", cpu=1, disk_mib=1, ram_mib=64, prices={"cpu": 1}
        )
        stray = Price(
            price_list=environment.price_lists.get(), resource=other.resources.get(slug="ram"), per_minute=1
        )
        assert "no such resource" in str(found_by_clean(stray)["resource"])
        assert "already has a price list" in str(
            found_by_clean(PriceList(environment=environment, currency="credit"))
        )

    @pytest.mark.parametrize("currency", ["Credit", "my money", "8996", "points:x", "1:", "1:a b", "1:a:b"])
    def test_a_currency_is_a_word_or_chain_and_token(self, environment, currency):
        """Whatever else would stand in no file: an export of it could not be imported, and no edit reverted."""
        prices = environment.price_lists.get()
        assert "write credit or another word" in str(found_by_clean(prices, currency=currency)["currency"])

    def test_one_list_for_a_token_however_it_is_spelt(self, environment):
        save_clean(PriceList(environment=environment, currency="1:0xAb"))
        twin = PriceList(environment=environment, currency="1:0xaB")
        assert found_by_clean(twin)["currency"] == [
            "This environment already has a price list in this currency."
        ]

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"endpoint": ""}, "endpoint"),
            ({"endpoint": "unix://relative"}, "endpoint"),
            ({"endpoint": "http://h:1"}, "endpoint"),
            ({"endpoint": "tcp://h"}, "endpoint"),
            ({"endpoint": "tcp://h:65536"}, "endpoint"),
            ({"endpoint": "tcp://h:2376", "tls_ca": "/a", "tls_key": "/b"}, "tls_certificate"),
            ({"tls_ca": "/a"}, "tls_ca"),
            ({"host": None}, "host"),
            ({"kind": "fleet"}, "host"),
            ({"state": "active"}, "state"),
            ({"image_retention_days": 0}, "image_retention_days"),
            ({"image_cleanup_interval": 3599}, "image_cleanup_interval"),
            ({"payment_claim_interval": 59}, "payment_claim_interval"),
        ],
        ids=str,
    )
    def test_engine(self, engine, changes, field):
        assert field in found_by_clean(engine, **changes)

    def test_engine_raw_and_whole(self, environment):
        rows = Engine.objects.all()
        assert broken(rows, host=None) == "engine_docker_has_host"
        assert broken(rows, image_retention_days=0) == "engine_image_retention_at_least_one_day"
        assert broken(rows, state="on") == "engine_state_known"
        engine = rows.get()
        assert "cannot change any more" in str(found_by_clean(engine, host=make_host("rack-b"))["host"])
        engine = rows.get()
        engine.endpoint, engine.tls_ca, engine.tls_certificate, engine.tls_key = (
            "tcp://[::1]:2376",
            "/a",
            "/b",
            "/c",
        )
        engine.full_clean()

    def test_host(self, host):
        assert "reserve_memory_mib" in found_by_clean(host, reserve_memory_mib=host.memory_mib + 1)
        assert broken(Host.objects.all(), reserve_disk_mib=10**9) == "host_disk_reserve_fits"


def _raw_price(price: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE environments_price SET per_minute = %s::numeric", [price])


class TestAcrossRows:
    def test_a_whole_environment_passes(self, environment):
        check_environment(environment)

    def test_disk_cpu_and_ram_are_needed(self, environment):
        environment.resources.exclude(kind="device").delete()
        found = found_by_check(environment)["resources"]
        assert [text.partition(";")[0] for text in found] == [
            "There is no cpu",
            "There is no ram",
            "There is no disk",
        ]

    def test_a_price_or_a_free_tier(self, environment):
        PriceList.objects.all().delete()
        check_environment(environment)
        environment.free_tier.delete()
        assert "neither a price nor a free tier" in str(found_by_check(environment)["price_lists"])

    def test_a_price_list_has_a_price(self, environment):
        Price.objects.all().delete()
        words = "Found no price; add one, or take the price list out."
        assert found_by_check(environment) == {"price_lists.credit.prices": [words]}

    def test_free_part_after_its_resource_shrank(self, environment):
        environment.resources.filter(slug="ram").update(total=1000, max=1000)
        found = found_by_check(environment)
        assert found == {
            "free_tier.resources.ram.total": ["2048 is more than the resource's total of 1000; lower it."]
        }

    def test_cores_of_another_host_and_a_total_that_differs(self, environment):
        Core.objects.filter(host=make_host("rack-b"), index=0).update(environment=environment)
        found = found_by_check(environment)
        assert found["cores"] == ["rack-b core 0 is not on the environment's host rack-a; take it out."]
        assert "The total is 4, but the environment has 5 cores" in str(found["resources.cpu.total"])

    def test_more_than_the_host_has(self, environment):
        environment.resources.filter(slug="ram").update(total=16_385)
        assert "16385 MiB is more than the host's 16384 MiB" in str(
            found_by_check(environment)["resources.ram.total"]
        )

    def test_overcommit_is_a_warning_with_both_numbers(self, environment, host):
        assert warnings(environment) == []
        other = create_environment(
            make_engine(host, "b"), "b", cpu=1, disk_mib=60_000, ram_mib=16_000, prices={"cpu": 1}
        )
        check_environment(environment)
        assert [text.partition(";")[0] for text in warnings(environment)] == [
            "ram: all environments on rack-a together offer 24192 MiB, the host has 16384 MiB",
            "disk: all environments on rack-a together offer 110000 MiB, the host has 100000 MiB",
        ]
        retire(other)
        assert warnings(environment) == []

    def test_devices(self, environment):
        gpu = environment.resources.get(slug="gpu")
        ResourceDevice.objects.filter(resource=gpu, device__uuid="GPU-rack-a-1").delete()
        assert "The total is 2, but 1 devices are chosen" in str(
            found_by_check(environment)["resources.gpu.total"]
        )
        stranger = make_host("rack-b").devices.first()
        row = ResourceDevice(resource=gpu, environment=environment, device=stranger)
        assert "is on host rack-b, the environment on rack-a" in str(found_by_clean(row)["device"])
        ResourceDevice.objects.bulk_create([row])
        assert "is on host rack-b; take it out" in str(found_by_check(environment)["resources.gpu.devices"])
        assert "is offered by local/main on another host" in str(
            found_by_clean(stranger, kind="fpga")["host"]
        )

    def test_one_device_in_two_resources(self, environment):
        gpu = environment.resources.get(slug="gpu").devices.first()
        second = Resource.objects.create(environment=environment, slug="gpu2", kind="device", total=1, max=1)
        row = ResourceDevice(resource=second, environment=environment, device=gpu)
        assert "is in gpu of this environment already" in str(found_by_clean(row))
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            ResourceDevice.objects.bulk_create([row])
        assert constraint_name(error.value) == "device_once_per_environment"

    def test_an_exclusive_device_is_not_shared(self, environment, host):
        gpu = environment.resources.filter(slug="gpu")
        gpu.update(sharing="exclusive")
        with pytest.raises(ValidationError, match="is in local/main too; make both resources shared"):
            create_environment(
                make_engine(host, "b"), "b", cpu=1, disk_mib=1, ram_mib=64, prices={"cpu": 1},
                devices={"gpu": ["GPU-rack-a-0"]},
            )  # fmt: skip
        assert Environment.objects.count() == 1
        retire(environment)  # it keeps its rows, and hands nothing out any more
        create_environment(
            make_engine(host, "c"), "c", cpu=1, disk_mib=1, ram_mib=64, prices={"cpu": 1},
            devices={"gpu": ["GPU-rack-a-0"]},
        )  # fmt: skip

    def test_host_keeps_what_is_offered(self, environment, host):
        host.reserve_disk_mib = 60_000
        Host.objects.filter(pk=host.pk).update(reserve_disk_mib=60_000)
        with pytest.raises(ValidationError, match="main offers 50000 MiB of disk, 42000 would be left"):
            check_host(host)

    def test_in_use(self, environment):
        take(environment, "free", cpu=2, ram=2000)
        take(environment, cpu=2, gpu=1)
        environment.resources.filter(slug="ram").update(total=2050, max=2050)
        FreeResource.objects.filter(resource__slug="ram").update(total=1000, max=1000)
        Core.objects.filter(index=1).update(environment=None)
        ResourceDevice.objects.filter(device__uuid="GPU-rack-a-0").delete()
        found = found_by_check(environment)
        assert found["resources.ram.total"][0].startswith("2064 are in use, 2050 would be left; drain")
        assert found["free_tier.resources.ram.total"][0].startswith(
            "2000 are in use by free jobs, 1000 would be left"
        )
        assert found["cores"][0].startswith("Cores 1 are held by running jobs")
        assert "is held by a running job" in found["resources.gpu.devices"][0]


class TestCpuset:
    @pytest.mark.parametrize(
        ("text", "cores"),
        [("", []), ("0-3,8", [0, 1, 2, 3, 8]), (" 5 , 1-2 ", [1, 2, 5]), ("7", [7]), ("3-3", [3])],
    )
    def test_reads(self, text, cores):
        assert parse_cores(text) == cores

    @pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,1", "0-3,2", "1.5", "1;2", "٣", "9" * 99])
    def test_refuses(self, text):
        with pytest.raises(ValidationError):
            parse_cores(text)

    @pytest.mark.parametrize("cores", [[1, 1], [True], ["1"], [1.0], [-1]])
    def test_refuses_what_is_no_index(self, cores):
        with pytest.raises(ValidationError):
            unique_cores(cores)

    def test_writes_the_shortest(self):
        assert format_cores([8, 0, 2, 1, 3]) == "0-3,8"
        assert format_cores([]) == ""
