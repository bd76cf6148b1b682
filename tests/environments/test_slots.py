"""Slots: what a worker may name, that no two live workers of an engine share any, and that claims come out of them."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from compute_site.core.db import constraint_name, database_now
from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import new_public_id
from environments import reservations
from environments.admin.pictures import cores_picture, devices_picture
from environments.models import Device, Reservation, Slots, SlotSet
from environments.models.slots import ALL
from environments.setup import create_environment
from environments.slots import (
    device_names,
    out_of_reach,
    queues_of_others,
    read_reach,
    read_slots,
    release_slots,
)
from tests.environments.conftest import UIDS, make_engine

GPU = "GPU-rack-a-{}"


def key_of(number: int) -> int:
    return Device.objects.get(uuid=GPU.format(number)).pk


def slots_of(engine, cores=None, devices=None, holder="one") -> Slots:
    return Slots.objects.create(engine=engine, holder=holder, cores=cores, devices=devices)


def acquire(environment, slots: SlotSet, **amounts: int) -> reservations.Claim:
    with transaction.atomic():
        reservations.lock_host(environment.host.pk)
        return reservations.acquire(
            holder=new_public_id(),
            environment=environment,
            tier="paid",
            amounts=amounts,
            uid_range=UIDS,
            slots=slots,
        )


# -- what is named


def test_without_options_a_worker_has_all_of_its_engine(environment):
    assert read_slots(environment.engine, None, None) == ALL


def test_cores_and_devices_are_those_that_are_named(environment):
    found = read_slots(environment.engine, "0-1,3", GPU.format(1))
    assert found == SlotSet(frozenset({0, 1, 3}), frozenset({key_of(1)}))
    assert (found.core_text, device_names(found.devices)) == ("0-1,3", "rack-a-1")
    assert read_slots(environment.engine, "2", None).devices == frozenset()


@pytest.mark.parametrize(
    ("cores", "devices", "field", "words"),
    [
        ("", None, "cores", "at least one"),
        (" , ", "", "cores", "at least one"),
        (None, GPU.format(0), "cores", "no job starts without a core"),
        ("0-", None, "cores", "no core or range"),
        ("3-1", None, "cores", "backwards"),
        ("1,1", None, "cores", "named twice"),
        ("0,7-9", None, "cores", "Host rack-a has no core 8-9; its cores are 0-7."),
        ("3-5", None, "cores", "Core 5 belongs to environment two/other"),
        (
            "0",
            "GPU-nowhere",
            "devices",
            "Host rack-a has no device GPU-nowhere; its devices are GPU-rack-a-0",
        ),
        ("0", f"{GPU.format(0)},{GPU.format(0)}", "devices", "named twice"),
    ],
)
def test_what_is_wrong_is_refused_by_name(environment, cores, devices, field, words):
    two = make_engine(environment.host, "two")
    create_environment(two, "other", cpu="5", ram_mib=64, disk_mib=64, prices={"cpu": 1})
    with pytest.raises(ValidationError) as refusal:
        read_slots(environment.engine, cores, devices)
    assert list(refusal.value.message_dict) == [field]
    assert words in refusal.value.message_dict[field][0]


# -- no two share any


@pytest.mark.parametrize(
    ("one", "other", "constraint"),
    [
        ((None, None), (None, None), "slots_one_worker_per_core"),
        ((None, None), ({7}, set()), "slots_one_worker_per_core"),
        (({0, 2}, set()), ({1, 2}, set()), "slots_one_worker_per_core"),
        (({0}, {5, 6}), ({1}, {6}), "slots_one_worker_per_device"),
    ],
)
def test_the_database_refuses_two_that_overlap(engine, one, other, constraint):
    slots_of(engine, *one)
    with pytest.raises(IntegrityError) as refusal, transaction.atomic():
        slots_of(engine, *other)
    assert constraint_name(refusal.value) == constraint
    assert Slots.objects.count() == 1


def test_parts_other_engines_and_released_slots_are_not_in_the_way(engine):
    first = slots_of(engine, {0, 1}, {5})
    slots_of(engine, {2}, {6})
    slots_of(make_engine(engine.host, "two"))
    release_slots(first.pk)
    slots_of(engine, {0}, {5})
    assert Slots.objects.filter(released_at=None).count() == 3


def test_what_is_written_is_read(engine):
    slots_of(engine, {0, 1, 2, 3, 8}, set())
    slots_of(make_engine(engine.host, "two"))
    narrow, everything = Slots.objects.order_by("pk")
    assert narrow.members == SlotSet(frozenset({0, 1, 2, 3, 8}), frozenset())
    assert everything.members == ALL


def test_each_worker_has_a_queue_of_its_own_and_knows_the_others(engine):
    low, high = slots_of(engine, {0, 1}, set()), slots_of(engine, {4, 5}, set())
    gone = slots_of(engine, {6}, set())
    release_slots(gone.pk)
    assert (low.queue, high.queue) == ("engine.local.0", "engine.local.4")
    assert queues_of_others(low) == ["engine.local.4"]
    everything = slots_of(make_engine(engine.host, "two"))
    assert everything.queue == "engine.two"
    assert queues_of_others(everything) == []


# -- claims


def test_cores_and_devices_are_claimed_out_of_the_slots(environment):
    slots = SlotSet(frozenset({1, 3}), frozenset({key_of(1)}))
    claim = acquire(environment, slots, cpu=2, ram=64, disk=64, gpu=1)
    assert (claim.cores, claim.devices) == ((1, 3), (GPU.format(1),))


@pytest.mark.parametrize("amounts", [{"cpu": 3}, {"cpu": 1, "gpu": 2}])
def test_what_is_free_outside_the_slots_is_not_given(environment, amounts):
    slots = SlotSet(frozenset({1, 3}), frozenset({key_of(1)}))
    with pytest.raises(CapacityUnavailable, match=r"2 cores|1 devices"):
        acquire(environment, slots, ram=64, disk=64, **amounts)
    assert not Reservation.objects.exists()
    acquire(environment, ALL, ram=64, disk=64, **amounts)


def test_memory_is_the_environment_s_whatever_the_slots(environment):
    acquire(environment, SlotSet(frozenset({0}), frozenset()), cpu=1, ram=8000, disk=64)
    with pytest.raises(CapacityUnavailable, match="needs 1000 ram, 192 free"):
        acquire(environment, SlotSet(frozenset({1}), frozenset()), cpu=1, ram=1000, disk=64)


# -- what no worker can take


def test_a_job_is_out_of_reach_when_no_live_worker_has_all_it_needs(environment):
    def reason(**amounts: int) -> str | None:
        return out_of_reach(read_reach([environment.pk])[environment.pk], {"ram": 1000, **amounts})

    assert reason(cpu=4, gpu=2) is None  # no worker at all: another reason
    one = slots_of(environment.engine, {0, 1, 7}, set())
    slots_of(environment.engine, {2}, {key_of(0)})
    assert reason(cpu=2) is None
    assert reason(cpu=1, gpu=1) is None
    assert reason(cpu=3) == "no live worker has slots for 3 cpu, at most 2"
    assert reason(cpu=4, gpu=2) == "no live worker has slots for 4 cpu, at most 2; 2 gpu, at most 1"
    assert reason(cpu=2, gpu=1) == "no live worker has slots for 2 cpu and 1 gpu together"
    release_slots(one.pk)
    assert reason(cpu=2) == "no live worker has slots for 2 cpu, at most 1"


def test_a_worker_with_all_of_the_engine_reaches_all(environment):
    slots_of(environment.engine)
    assert out_of_reach(read_reach([environment.pk])[environment.pk], {"cpu": 4, "gpu": 2}) is None


# -- the picture


def test_the_picture_tells_whose_slot_a_core_or_device_is(environment: Any):
    slots_of(environment.engine, {0}, {key_of(0)}, holder="abc")
    gone = slots_of(environment.engine, {1}, set(), holder="gone")
    Slots.objects.filter(pk=gone.pk).update(released_at=database_now())
    cores, devices = cores_picture(environment.host), devices_picture(environment.host)
    assert cores.count("slot of worker abc") == devices.count("slot of worker abc") == 1
    assert "gone" not in cores
