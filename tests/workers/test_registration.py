"""Where devices are looked for, and what is said when nobody could look."""

import json
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from environments.described_nvml import DescribedNVML
from environments.models import Device, Engine, Host
from workers.registration import detect_devices, look_again

pytestmark = pytest.mark.django_db
CARD = {"uuid": "GPU-a", "name": "NVIDIA H200", "memory_mib": 143_771}


def engine_at(endpoint: str) -> Engine:
    return Engine.objects.create(host=Host.objects.create(name="h"), name="e", endpoint=endpoint)


def library(**description: Any) -> DescribedNVML:
    return DescribedNVML({"driver": "570.1", "devices": [CARD], **description})


def test_the_engine_of_this_machine():
    engine = engine_at("unix:///var/run/docker.sock")
    assert detect_devices(engine, library()) == []
    assert Device.objects.get().host == engine.host


def test_an_engine_elsewhere_is_not_asked():
    (warning,) = detect_devices(engine_at("tcp://h:2376"), library())
    assert "e is on another machine. Enter them by hand" in warning
    assert not Device.objects.exists()


def test_silence_changes_no_device():
    engine = engine_at("unix:///var/run/docker.sock")
    detect_devices(engine, library())
    rows = list(Device.objects.values())
    (warning,) = detect_devices(engine, library(error="Driver Not Loaded"))
    assert "were not looked for" in warning
    assert list(Device.objects.values()) == rows


@dataclass(frozen=True)
class Facts:
    cpu_count: int = 4
    memory_mib: int = 8192
    disk_mib: int | None = 100_000
    architecture: str = "amd64"
    os: str = "linux"


def test_a_worker_looks_again_when_it_starts(caplog):
    """The driver comes late: not there at the first start, there at the next."""
    engine = engine_at("unix:///var/run/docker.sock")
    look_again(engine, Facts(), library(error="Driver Not Loaded"))
    assert "enter them by hand in the admin" in caplog.text
    assert (Host.objects.get().cpu_count, Device.objects.count()) == (4, 0)
    look_again(engine, Facts(), library())
    assert Device.objects.get().uuid == "GPU-a"


def test_what_cannot_be_detected_at_a_start_is_told_and_changes_nothing(caplog):
    engine = engine_at("unix:///var/run/docker.sock")
    look_again(engine, Facts(disk_mib=None), library())
    assert "Nothing was detected (found 0); enter disk_mib of host h by hand." in caplog.text
    assert (Host.objects.get().cpu_count, Device.objects.count()) == (0, 0)


def test_an_engine_that_does_not_answer_is_an_error_that_says_what_to_enter(tmp_path):
    engine_at(f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(CommandError, match="enter cores, memory and disk of host h by hand in the admin"):
        call_command("detect_host", stdout=StringIO())
    assert Host.objects.values_list("cpu_count", "memory_mib", "disk_mib").get() == (0, 0, 0)


@pytest.mark.engine
def test_detect_host_with_described_devices(tmp_path: Any):
    call_command("register_engine", "local", stdout=StringIO())
    file = tmp_path / "gpus.json"
    file.write_text(json.dumps({"driver": "570.1", "devices": [CARD]}))
    told = StringIO()
    call_command("detect_host", nvml=str(file), stdout=told)
    assert "1 devices" in told.getvalue()
    assert Device.objects.get().uuid == "GPU-a"
    with pytest.raises(CommandError, match="--nvml"):
        call_command("detect_host", nvml="/nowhere.json", stdout=StringIO())
