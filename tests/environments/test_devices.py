"""What detection writes: a device is its UUID, one that vanishes is not handed out, one that is back is again."""

import pytest
from django.core.exceptions import ValidationError

from compute_site.core.errors import CapacityUnavailable
from compute_site.core.models import save_clean
from environments.described_nvml import DescribedNVML
from environments.devices import record_devices
from environments.models import Device, Host
from environments.nvml import detect_devices
from environments.use import free_amounts
from tests.environments.conftest import give_back, take

FIRST, SECOND = "GPU-rack-a-0", "GPU-rack-a-1"


def detect(host: Host, *uuids: str, driver: str = "570.1") -> list[str]:
    cards = [{"uuid": uuid, "name": "NVIDIA H200", "memory_mib": 1000} for uuid in uuids]
    return record_devices(host, detect_devices(DescribedNVML({"driver": driver, "devices": cards})))


def health(uuid: str) -> tuple[str, bool]:
    device = Device.objects.get(uuid=uuid)
    return device.health, device.missing_since is not None


def free(environment) -> int:
    return free_amounts([environment])[environment.pk]["gpu"].free


def test_new_ones_and_changed_ones(host):
    assert detect(host, FIRST, SECOND, "GPU-new") == []
    new = Device.objects.get(uuid="GPU-new")
    assert (new.host, new.model, new.memory_mib, new.driver_version) == (host, "NVIDIA H200", 1000, "570.1")
    assert new.seen_at
    versions = list(Device.objects.order_by("pk").values_list("version", flat=True))
    detect(host, "GPU-new", SECOND, FIRST)
    assert list(Device.objects.order_by("pk").values_list("version", flat=True)) == versions
    detect(host, FIRST, SECOND, "GPU-new", driver="580")
    assert Device.objects.get(uuid="GPU-new").version == new.version + 1


def test_another_order_moves_nothing(environment, host):
    detect(host, FIRST, SECOND)
    _holder, claim = take(environment, gpu=1)
    detect(host, SECOND, FIRST)
    _other, neighbour = take(environment, gpu=1)
    assert {*claim.devices, *neighbour.devices} == {FIRST, SECOND}


def test_a_missing_one_is_not_handed_out_until_it_is_back(environment, host):
    detect(host, FIRST, SECOND)
    (warning,) = detect(host, SECOND)
    assert f"{FIRST} (NVIDIA H200) is not there any more" in warning
    assert health(FIRST) == ("unhealthy", True)
    assert free(environment) == 1
    holder, claim = take(environment, gpu=1)
    assert claim.devices == (SECOND,)
    with pytest.raises(CapacityUnavailable):
        take(environment, gpu=1)
    assert detect(host, SECOND) == []
    detect(host, FIRST, SECOND)
    assert health(FIRST) == ("healthy", False)
    give_back(holder)
    assert free(environment) == 2


def test_a_missing_one_stays_with_the_job_that_holds_it(environment, host):
    holder, claim = take(environment, gpu=2)
    detect(host)
    assert free(environment) == 0
    assert set(claim.devices) == {FIRST, SECOND}
    give_back(holder)
    assert free(environment) == 0


def test_what_an_operator_calls_unhealthy_stays_so(environment, host):
    Device.objects.filter(uuid=FIRST).update(health="unhealthy")
    detect(host, FIRST, SECOND)
    assert health(FIRST) == ("unhealthy", False)


def test_other_platforms_and_other_hosts_stay_as_they_are(host):
    Device.objects.filter(uuid=FIRST).update(platform="amd")
    other = Host.objects.create(name="other")
    Device.objects.create(host=other, uuid="GPU-far")
    (warning,) = detect(host, SECOND, "GPU-far")
    assert "GPU-far was found here, but it is a device of host other" in warning
    assert health(FIRST) == health("GPU-far") == ("healthy", False)
    assert Device.objects.get(uuid="GPU-far").host == other


def test_a_device_that_was_entered_by_its_index_is_not_handed_out_once_detection_saw_the_host(host):
    """It may be the same card as one that has its UUID: both would be given out."""
    Device.objects.create(host=host, uuid="0")
    detect(host, FIRST, SECOND)
    assert health("0") == ("unhealthy", True)


def test_a_new_card_in_place_of_an_old_one(environment, host):
    """Same machine, same index: the old one is unhealthy, the new one a device of its own that nobody offers yet."""
    detect(host, FIRST, SECOND)
    detect(host, "GPU-new", SECOND)
    assert health(FIRST) == ("unhealthy", True)
    new = Device.objects.get(uuid="GPU-new")
    assert (health("GPU-new"), new.resource_devices.exists()) == (("healthy", False), False)
    assert free(environment) == 1


def test_a_card_that_does_not_answer_is_not_handed_out(environment, host):
    detect(host, FIRST, SECOND)
    cards = [{"error": "GPU is lost"}, {"uuid": SECOND, "name": "NVIDIA H200", "memory_mib": 1000}]
    record_devices(host, detect_devices(DescribedNVML({"driver": "570.1", "devices": cards})))
    assert health(FIRST) == ("unhealthy", True)
    assert free(environment) == 1


@pytest.mark.parametrize("platform", ["amd", "intel"])
def test_devices_of_other_makers_are_entered_in_the_admin(host, browser, platform):
    values = {"host": host.pk, "uuid": f"{platform}-0", "kind": "gpu", "platform": platform, "model": "M"}
    values |= {"memory_mib": 1000, "health": "healthy", "init-TOTAL_FORMS": 0, "init-INITIAL_FORMS": 0}
    answer = browser.post("/admin/environments/device/add/", values)
    assert answer.status_code == 302
    detect(host)
    assert health(f"{platform}-0") == ("healthy", False)


@pytest.mark.parametrize(
    "uuid", ["all", "ALL", "none", "void", "GPU-1,GPU-2", "GPU 1", "GPU-1\n", "GPU-1\0", "GPÜ"]
)
def test_an_id_is_of_one_device(host, uuid):
    """The driver of NVIDIA would hand out every device of the host for one that is called all."""
    before = Device.objects.count()
    with pytest.raises(ValidationError) as error:
        save_clean(Device(host=host, uuid=uuid))
    assert "write the id of one device" in error.value.message_dict["uuid"][0]
    assert Device.objects.count() == before


@pytest.mark.parametrize("uuid", ["GPU-5d1f", "MIG-GPU-5d1f/1/0", "0", "0000:03:00.0", "all-0"])
def test_ids_as_drivers_write_them(host, uuid):
    save_clean(Device(host=host, uuid=uuid))


def test_a_platform_that_lower_case_makes_too_long_is_refused(host):
    with pytest.raises(ValidationError) as error:
        save_clean(Device(host=host, uuid="x", platform="İ" * 17))
    assert list(error.value.message_dict) == ["platform"]
    assert not Device.objects.filter(uuid="x").exists()
