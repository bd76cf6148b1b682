"""Where devices are looked for, and what is said when nobody could look."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from environments.described_nvml import DescribedNVML
from environments.models import Device, Engine, Host
from workers.registration import detect_devices

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
