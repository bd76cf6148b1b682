"""Detection of NVIDIA devices: through a described library, and through pynvml where it has no driver to talk to."""

import json
import logging

import pynvml
import pytest

from environments.described_nvml import DescribedNVML
from environments.nvml import DeviceFacts, NVMLUnavailable, detect_devices

CARDS = [
    {"uuid": "GPU-b", "name": "NVIDIA H200", "memory_mib": 143_771},
    {"uuid": "GPU-a", "name": "NVIDIA A10", "memory_mib": 23_028},
]


def described(*cards, **more) -> DescribedNVML:
    return DescribedNVML({"driver": "570.1", "devices": list(cards), **more})


def test_devices_are_known_by_uuid_whatever_their_order():
    expected = [
        DeviceFacts("GPU-a", "NVIDIA A10", 23_028, "570.1"),
        DeviceFacts("GPU-b", "NVIDIA H200", 143_771, "570.1"),
    ]
    assert detect_devices(described(*CARDS)) == expected
    assert detect_devices(described(*reversed(CARDS))) == expected


def test_a_card_that_does_not_answer_is_left_out_and_told(caplog):
    with caplog.at_level(logging.WARNING):
        found = detect_devices(described(CARDS[0], {"error": "GPU is lost"}))
    assert [facts.uuid for facts in found] == ["GPU-b"]
    assert "the device at index 1 does not answer: GPU is lost" in caplog.text


def test_none_is_an_answer_and_silence_is_not():
    assert detect_devices(described()) == []
    with pytest.raises(NVMLUnavailable, match="Driver Not Loaded"):
        detect_devices(described(error="Driver Not Loaded"))


def test_one_call_that_fails_costs_that_card_alone(caplog, monkeypatch):
    library = described(*CARDS)
    uuid, memory = library.nvmlDeviceGetUUID, library.nvmlDeviceGetMemoryInfo

    def fail_for(name, call):
        def answer(handle):
            if handle["uuid"] == name:
                raise library.NVMLError("Unknown Error")
            return call(handle)

        return answer

    monkeypatch.setattr(library, "nvmlDeviceGetUUID", fail_for("GPU-b", uuid))
    monkeypatch.setattr(library, "nvmlDeviceGetMemoryInfo", fail_for("GPU-a", memory))
    (found,) = detect_devices(library)
    assert (found.uuid, found.memory_mib) == ("GPU-a", 0)
    assert "does not answer: Unknown Error" in caplog.text


def test_a_count_that_fails_is_no_answer(monkeypatch):
    library = described(*CARDS)
    monkeypatch.setattr(library, "nvmlDeviceGetCount", lambda: library.nvmlDeviceGetHandleByIndex(9))
    with pytest.raises(NVMLUnavailable, match="enter them by hand in the admin"):
        detect_devices(library)


def test_a_device_without_memory_of_its_own():
    assert detect_devices(described({"uuid": "GPU-c", "name": "GB10"}))[0].memory_mib == 0


def test_the_library_is_closed_again():
    library = described(*CARDS)
    detect_devices(library)
    with pytest.raises(library.NVMLError):
        library.nvmlDeviceGetCount()


def test_a_description_in_a_file(tmp_path):
    file = tmp_path / "gpus.json"
    file.write_text(json.dumps({"driver": "1", "devices": CARDS}))
    assert len(detect_devices(DescribedNVML.from_file(str(file)))) == 2
    file.write_text("[]")
    with pytest.raises(ValueError, match="describes no devices"):
        DescribedNVML.from_file(str(file))


def test_the_described_library_has_what_is_asked_of_the_real_one():
    names = [name for name in dir(DescribedNVML) if name.startswith("nvml")]
    assert len(names) == 8
    assert all(callable(getattr(pynvml, name)) for name in names)


def real_devices() -> list[DeviceFacts] | None:
    try:
        return detect_devices()
    except NVMLUnavailable:
        return None


def test_the_real_library():
    """Through pynvml: whatever this machine has, it is told by UUID; without a driver that is an error, not "none"."""
    found = real_devices()
    if found is None:
        with pytest.raises(NVMLUnavailable, match="not looked for"):
            detect_devices()
    else:
        assert all(facts.uuid.startswith("GPU-") and facts.model for facts in found)
