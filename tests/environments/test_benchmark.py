"""The benchmark environment: kept in step with switch, settings and host; owns nothing, claims all, runs alone."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from compute_site.core.db import database_now
from compute_site.core.errors import CapacityUnavailable, TransitionRefused
from compute_site.core.models import new_public_id
from environments import editing, reservations
from environments.alone import in_the_way
from environments.benchmark import keep_host_in_step, keep_in_step
from environments.models import Core, Device, Engine, Environment, Host, Reservation
from environments.rules import check_environment, check_host, warnings
from environments.setup import create_environment
from environments.use import free_amounts
from tests.environments.conftest import UIDS, acquire, give_back, make_engine, make_host, place_cores, take


@pytest.fixture(autouse=True)
def terms(settings: Any) -> None:
    settings.BENCHMARK_SECONDS, settings.BENCHMARK_CURRENCY = 120, "1:0xAb"
    settings.BENCHMARK_CORE_PRICE, settings.BENCHMARK_USERS = "0.5", ["monitor"]
    settings.BENCHMARK_ADDRESSES = ["0xABCD"]


def switch(engine: Engine, on: bool = True) -> list[str]:
    Engine.objects.filter(pk=engine.pk).update(enable_benchmark=on)
    return keep_in_step(engine)


def measuring(engine: Engine) -> Environment:
    assert switch(engine) == []
    return Environment.objects.select_related("engine__host").get(engine=engine, benchmark=True)


def rested() -> None:
    """As if the last run had been long ago."""
    Reservation.objects.filter(exited_at__isnull=False).update(exited_at=database_now() - timedelta(hours=1))


def totals(environment: Environment) -> dict[str, int]:
    return dict(environment.resources.values_list("slug", "total"))


def test_it_spans_the_host_as_the_settings_say(engine, environment):
    row = measuring(engine)
    assert totals(row) == {"cpu": 8, "ram": 16_384, "disk": 100_000, "gpu": 2}
    assert (row.slug, row.max_job_duration, row.cores.count()) == ("benchmark", 120, 0)
    assert "not an offer" in row.description
    price = row.price_lists.get().prices.select_related("price_list", "resource").get()
    assert (price.price_list.currency, price.resource.slug, price.per_minute) == (
        *("1:0xAb", "cpu"),
        Decimal("0.5"),
    )
    assert set(row.access_rules.values_list("tier", "kind", "value")) == {
        ("paid", "user", "monitor"),
        ("paid", "address", "0xabcd"),
    }
    assert not hasattr(row, "free_tier")
    assert Environment.objects.filter(benchmark=True).count() == 1
    check_environment(environment)  # and its neighbours do not mind


def test_a_device_called_like_something_else(engine, host):
    Device.objects.create(host=host, uuid="NVME-1", kind="Disk")
    assert totals(measuring(engine)) == {"cpu": 8, "ram": 16_384, "disk": 100_000, "gpu": 2, "disk-device": 1}


def test_a_device_that_is_ill_is_spanned_too_and_not_handed_out(engine, host):
    Device.objects.filter(uuid="GPU-rack-a-0").update(health="unhealthy")
    row = measuring(engine)
    assert totals(row)["gpu"] == 2
    assert free_amounts([row])[row.pk]["gpu"].free == 1


def test_off_by_default(engine, environment):
    assert keep_in_step(engine) == []
    assert not Environment.objects.filter(benchmark=True).exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BENCHMARK_SECONDS", 0),
        ("BENCHMARK_CURRENCY", ""),
        ("BENCHMARK_CURRENCY", "8996"),
        ("BENCHMARK_CORE_PRICE", ""),
        ("BENCHMARK_CORE_PRICE", "much"),
        ("BENCHMARK_CORE_PRICE", "NaN"),
        ("BENCHMARK_CORE_PRICE", "-1"),
        ("BENCHMARK_CORE_PRICE", "1e-19"),
        *(("BENCHMARK_CORE_PRICE", price) for price in ("Infinity", "1e400")),
        ("BENCHMARK_SECONDS", 10**12),
        ("BENCHMARK_CURRENCY", "1:" + "x" * 200),
    ],
)
def test_nothing_is_baked_in(engine, settings, name, value):
    setattr(settings, name, value)
    (told,) = switch(engine)
    assert name in told
    assert not Environment.objects.exists()


def test_it_is_never_open_to_everybody(engine, settings):
    settings.BENCHMARK_USERS = settings.BENCHMARK_ADDRESSES = []
    assert "BENCHMARK_USERS or BENCHMARK_ADDRESSES" in switch(engine)[0]
    assert not Environment.objects.exists()


def test_settings_that_are_taken_away_leave_it_as_it_was_and_say_so(engine, settings):
    row = measuring(engine)
    settings.BENCHMARK_USERS = settings.BENCHMARK_ADDRESSES = []
    (told,) = keep_in_step(engine)
    assert "stays as it was, open to the same people, until enable_benchmark is off" in told
    row.refresh_from_db()
    assert (row.state, row.access_rules.count()) == ("active", 2)
    assert switch(engine, on=False) == []
    assert "there is no benchmark environment yet" in switch(engine)[0]
    row.refresh_from_db()
    assert row.state == "retired"


def test_spaces_of_a_list_are_nobodys_name(engine, settings):
    settings.BENCHMARK_USERS, settings.BENCHMARK_ADDRESSES = ["", " ", "bob", " bob"], [" 0xABCD"]
    row = measuring(engine)
    rules = set(row.access_rules.values_list("pk", "kind", "value"))
    assert {rule[1:] for rule in rules} == {("user", "bob"), ("address", "0xabcd")}
    assert switch(engine) == []
    assert set(row.access_rules.values_list("pk", "kind", "value")) == rules  # the same rows
    settings.BENCHMARK_USERS = settings.BENCHMARK_ADDRESSES = [" "]
    assert "BENCHMARK_USERS or BENCHMARK_ADDRESSES" in switch(engine)[0]


def test_it_follows_host_and_settings(engine, host, settings):
    row = measuring(engine)
    keys = set(row.resources.values_list("pk", flat=True))
    Host.objects.update(cpu_count=6, memory_mib=9024)
    Device.objects.create(host=host, uuid="AMD-1", kind="accelerator", platform="amd")
    settings.BENCHMARK_USERS, settings.BENCHMARK_ADDRESSES = ["other"], []
    settings.BENCHMARK_CURRENCY = "credit"
    assert keep_host_in_step(host) == []
    assert totals(row) == {"cpu": 6, "ram": 8000, "disk": 100_000, "gpu": 2, "accelerator": 1}
    assert keys < set(row.resources.values_list("pk", flat=True))
    assert list(row.access_rules.values_list("value", flat=True)) == ["other"]
    assert list(row.price_lists.values_list("currency", flat=True)) == ["credit"]


@pytest.mark.parametrize(
    "size",
    [["cpu_count"], ["memory_mib", "reserve_memory_mib"], ["disk_mib", "reserve_disk_mib"]],
)
def test_of_a_host_that_was_not_detected_there_is_nothing_to_measure(engine, size):
    Host.objects.update(**dict.fromkeys(size, 0))
    (told,) = switch(engine)
    assert told.endswith(
        "rack-a has no core, memory or disk without its reserve: detect the host, or lower the reserve."
    )
    assert not Environment.objects.exists()


def test_the_name_of_an_offer_is_not_taken_over(engine):
    offer = create_environment(engine, "benchmark", cpu="0", ram_mib=64, disk_mib=64, prices={"cpu": 1})
    assert "local/benchmark is an offer: give that environment another slug." in switch(engine)[0]
    assert list(Environment.objects.values_list("pk", "benchmark")) == [(offer.pk, False)]


def test_a_size_that_its_job_holds_is_not_taken_away(engine, host):
    row = measuring(engine)
    holder, _ = take(row, ram=10_000)
    Host.objects.update(memory_mib=6024)
    with pytest.raises(ValidationError, match="10000 are in use, 5000 would be left"):
        keep_host_in_step(host)
    assert totals(row)["ram"] == 16_384
    give_back(holder)
    keep_host_in_step(host)
    assert totals(row)["ram"] == 5000


def test_switched_off_it_is_retired_and_switched_on_it_is_the_same_again(engine):
    row = measuring(engine)
    holder, _ = take(row)
    with pytest.raises(ValidationError, match="1 jobs still hold resources") as error, transaction.atomic():
        switch(engine, on=False)
    assert list(error.value.message_dict) == ["enable_benchmark"]
    assert Environment.objects.get(pk=row.pk).state == "active"
    give_back(holder)
    assert switch(engine, on=False) == []
    assert Environment.objects.get(pk=row.pk).state == "retired"
    row.engine.refresh_from_db()
    with pytest.raises(ValidationError, match="switch enable_benchmark of engine local on instead"):
        editing.resume(row)
    assert measuring(engine) == row
    assert Environment.objects.get(pk=row.pk).state == "active"


def test_one_that_was_drained_is_in_step_again(engine):
    row = measuring(engine)
    Environment.objects.filter(pk=row.pk).update(state="draining")
    assert measuring(engine) == row
    assert Environment.objects.get(pk=row.pk).state == "active"


def test_by_hand_it_gets_no_cores_and_is_not_retired(engine):
    row = measuring(engine)
    for edit in (lambda: place_cores(row, "0-1"), lambda: editing.set_core_total(row, 2)):
        with pytest.raises(ValidationError, match="owns no core"):
            edit()
    for move in (editing.drain, editing.resume, editing.retire):
        with pytest.raises(ValidationError, match="switch enable_benchmark of engine local off instead"):
            move(row)
    assert (Environment.objects.get(pk=row.pk).state, row.edits.count()) == ("active", 1)
    assert not Core.objects.filter(environment=row).exists()
    with pytest.raises(TransitionRefused):
        editing.revive(row)


def test_sums_over_the_host_leave_it_out(engine, environment, host):
    before = warnings(environment)
    row = measuring(engine)
    assert warnings(environment) == before
    host.refresh_from_db()
    host.reserve_memory_mib += 2000  # what it offers is no reason against: it follows
    host.save()
    check_host(host)
    keep_host_in_step(host)
    assert totals(row)["ram"] == 14_384


def test_a_device_that_is_exclusive_to_another_environment_is_measured_too(engine, environment):
    environment.resources.filter(slug="gpu").update(sharing="exclusive")
    row = measuring(engine)
    check_environment(environment)
    assert len(take(row, gpu=2)[1].devices) == 2


def test_it_claims_cores_whoever_owns_them(engine, environment):
    row = measuring(engine)
    assert free_amounts([row])[row.pk]["cpu"].free == 8
    _, claim = take(row, cpu=8, gpu=2)
    assert (claim.cores, len(claim.devices)) == (tuple(range(8)), 2)
    assert free_amounts([environment])[environment.pk]["cpu"].free == 0
    check_environment(environment)
    check_environment(row)


def refused(environment: Environment, words: str, **asked: int) -> None:
    before = Reservation.objects.count()
    with pytest.raises(CapacityUnavailable, match=words) as error:
        take(environment, **asked)
    assert (error.value.resource, Reservation.objects.count()) == ("host", before)
    assert words in in_the_way([environment.pk])[environment.pk]


def test_it_runs_alone(engine, environment):
    row, elsewhere = measuring(engine), make_engine(engine.host, "second")
    other = create_environment(elsewhere, "other", cpu="4-7", ram_mib=512, disk_mib=500, prices={"cpu": 1})
    holder, _ = take(other)
    refused(row, "others hold something of its host")
    with transaction.atomic():
        reservations.release_running(holder)
    refused(row, "others hold something of its host")  # until nothing of it is left on the machine
    with transaction.atomic():
        reservations.release_rest(holder)
    measured, _ = take(row)
    for one in (environment, other):
        refused(one, "a benchmark runs on its host")
    refused(row, "others hold something of its host")
    reservations.revoke(measured)
    refused(environment, "a benchmark runs on its host")  # it is not known to be gone
    with transaction.atomic():
        reservations.release_running(measured)
    take(environment)


def test_another_host_is_not_concerned(engine, environment):
    take(environment)
    far = make_engine(make_host("rack-b"), "far")
    row = measuring(far)
    take(row, cpu=8)
    take(environment)


def test_the_next_one_lets_others_have_their_turn_first(engine, environment):
    row = measuring(engine)
    holder, _ = take(row)
    give_back(holder)
    refused(row, "measured a short while ago")
    assert in_the_way([environment.pk]) == {}
    rested()
    take(row)


def contend(environments: list[Environment], wanted: int) -> None:
    """Take and give back in turn, until it was granted so often."""
    try:
        for number in range(5000):
            if not wanted:
                return
            try:
                holder, _ = take(environments[number % len(environments)])
            except CapacityUnavailable:
                continue
            wanted -= 1
            give_back(holder)
        raise AssertionError("never its turn")
    finally:
        connection.close()


TOGETHER = """
SELECT count(*) FROM environments_reservation r JOIN environments_environment e ON e.id = r.environment_id AND e.benchmark
  JOIN environments_reservation x ON x.host_id = r.host_id AND x.id <> r.id
 WHERE tstzrange(r.created_at, r.exited_at) && tstzrange(x.created_at, x.exited_at)
"""


@pytest.mark.django_db(transaction=True)
def test_threads_never_find_it_beside_another(settings):
    settings.MAX_BYPASS_SECONDS = 0
    host = make_host()
    engines = [make_engine(host, name) for name in ("one", "two")]
    offers = [
        create_environment(engine, "main", cpu=4, ram_mib=4096, disk_mib=4096, prices={"cpu": 1})
        for engine in engines
    ]
    row = measuring(engines[0])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(contend, [[row], [row, offers[0]], offers, [offers[1], row]], [3, 8, 8, 8]))
    assert not Reservation.objects.filter(released_at=None).exists()
    with connection.cursor() as cursor:
        cursor.execute(TOGETHER)
        assert cursor.fetchone() == (0,)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first_is_benchmark", [True, False])
def test_who_comes_second_waits_for_the_lock_and_sees_the_first(first_is_benchmark):
    engine = make_engine(make_host())
    offer = create_environment(engine, "main", cpu="0-3", ram_mib=4096, disk_mib=4096, prices={"cpu": 1})
    first, second = (measuring(engine), offer) if first_is_benchmark else (offer, measuring(engine))
    amounts = {"cpu": 1, "ram": 64, "disk": 64}

    def late() -> str:
        try:
            acquire(second, new_public_id(), amounts, uids=(UIDS[0] + 500, 10))
            return "taken"
        except CapacityUnavailable as error:
            return error.resource
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            acquire(first, new_public_id(), amounts)
            outcome = other.submit(late)
            wait([outcome], timeout=0.2)  # without the lock it would have read by now
        assert outcome.result() == "host"
    assert Reservation.objects.get().environment == first
