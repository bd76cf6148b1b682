from dataclasses import dataclass, replace

import pytest
from django.core.exceptions import ValidationError

from environments.detection import record_engine, record_host
from environments.models import Core, Engine, Host
from environments.setup import create_environment
from tests.environments.conftest import give_back, make_engine, place_cores, take


@dataclass(frozen=True)
class Facts:
    cpu_count: int = 8
    memory_mib: int = 32_000
    disk_mib: int | None = 200_000
    architecture: str = "amd64"
    os: str = "linux"
    engine_id: str = "ID-1"


@dataclass(frozen=True)
class Probe:
    workspace_mode: str = "shared"
    disk_mode: str = "loop"


def indexes(host) -> list[int]:
    return list(host.cores.order_by("index").values_list("index", flat=True))


def test_first_detection_makes_the_cores(db):
    host = Host.objects.create(name="new")
    assert record_host(host, Facts()) == []
    assert (host.cpu_count, host.memory_mib, host.disk_mib) == (8, 32_000, 200_000)
    assert (host.architecture, host.operating_system, host.detected_at is None) == ("amd64", "linux", False)
    assert indexes(host) == list(range(8))
    assert host.version == 2


def test_again_changes_nothing_but_the_time(environment, host):
    rows = list(Core.objects.values())
    record_host(host, Facts())
    assert list(Core.objects.values()) == rows


@pytest.mark.parametrize(
    ("change", "field"),
    [({"cpu_count": 0}, "cpu_count"), ({"memory_mib": None}, "memory_mib"), ({"disk_mib": None}, "disk_mib")],
)
def test_nothing_found_is_an_error_that_says_what_to_enter(db, change, field):
    host = Host.objects.create(name="new")
    with pytest.raises(ValidationError) as error:
        record_host(host, replace(Facts(), **change))
    assert f"enter {field} of host new by hand" in error.value.message_dict[field][0]
    assert Host.objects.get().detected_at is None
    assert not Core.objects.exists()


def test_an_unseen_disk_keeps_the_size_entered_by_hand(host):
    record_host(host, replace(Facts(), disk_mib=None))
    assert host.disk_mib == 102_000


def test_what_was_entered_by_hand_stays_while_the_machine_has_it(db):
    host = Host.objects.create(name="new")
    record_host(host, Facts())
    version = host.version
    assert record_host(host, Facts()) == []
    assert host.version == version  # no open form is stale for that
    Host.objects.update(cpu_count=6, memory_mib=40_000)
    (warning,) = record_host(host, Facts())
    assert warning.startswith("cpu_count of host new was entered by hand and stays 6; 8 were detected.")
    assert (host.cpu_count, host.memory_mib, indexes(host)) == (6, 32_000, list(range(6)))
    assert record_host(host, replace(Facts(), cpu_count=4)) == []
    assert (
        record_host(host, replace(Facts(), cpu_count=8)) == []
    )  # a size that was detected follows the machine
    assert (host.cpu_count, indexes(host)) == (8, list(range(8)))


def test_a_disk_entered_by_hand_for_an_engine_that_shows_none_stays(db):
    host = Host.objects.create(name="new", disk_mib=50_000)
    record_host(host, replace(Facts(), disk_mib=None))
    record_host(host, replace(Facts(), disk_mib=None))
    assert (host.disk_mib, host.detected_disk_mib) == (50_000, None)
    assert "disk_mib of host new was entered by hand" in record_host(host, Facts())[0]
    assert host.disk_mib == 50_000


def test_of_several_disks_the_smallest_counts_whichever_engine_is_asked(db):
    """A second engine whose data root is on another file system changes nothing that was promised of the first one's."""
    host = Host.objects.create(name="new")
    small, large = make_engine(host, "a"), make_engine(host, "b")
    sizes = {small: 100_000, large: 900_000}
    Engine.objects.filter(pk=small.pk).update(facts={"disk_mib": 100_000})
    record_host(host, Facts(disk_mib=100_000), small)
    version = host.version
    for engine in (large, small, large):
        Engine.objects.filter(pk=engine.pk).update(facts={"disk_mib": sizes[engine]})
        (warning,) = record_host(host, Facts(disk_mib=sizes[engine]), engine)
        assert "(100000 MiB of a, 900000 MiB of b); the smallest counts" in warning
        assert (host.disk_mib, host.detected_disk_mib, host.version) == (100_000, 100_000, version)
    record_host(host, Facts(disk_mib=None), small)  # from where its worker runs it cannot be seen
    assert host.disk_mib == 100_000
    Engine.objects.filter(pk=small.pk).update(facts={})
    assert record_host(host, Facts(disk_mib=900_000), large) == []
    assert host.disk_mib == 900_000


def test_fewer_cores(environment, host):
    record_host(host, replace(Facts(), cpu_count=6))
    assert indexes(host) == list(range(6))
    told = "It cannot become 2: cores 2-3 belong to an environment or a running job; take them out"
    with pytest.raises(ValidationError, match=told):
        record_host(host, replace(Facts(), cpu_count=2))
    assert Host.objects.get().cpu_count == 6
    holder, _ = take(environment, cpu=4)
    give_back(holder)
    place_cores(environment, "0-1")
    record_host(host, replace(Facts(), cpu_count=2))
    assert indexes(host) == [0, 1, 2, 3]  # two rows keep the history of old reservations
    with pytest.raises(ValidationError, match="has no core 3; it has 0-1"):
        place_cores(environment, "0,3")


def test_less_memory_than_is_offered_is_a_warning(environment, host):
    assert record_host(host, replace(Facts(), memory_mib=5000, disk_mib=None)) == [
        "main: the total of 8192 MiB of ram is more than the host has without its reserve: 3976 MiB are offered."
    ]
    assert Host.objects.get().memory_mib == 5000


def test_a_detection_that_leaves_the_host_overcommitted_says_so(environment, engine, host):
    create_environment(engine, "b", cpu=1, disk_mib=64, ram_mib=8192, prices={"cpu": 1})
    (told,) = record_host(host, replace(Facts(), memory_mib=16_384, disk_mib=None))
    assert told.startswith("ram: all environments on rack-a together offer 16384 MiB, the host has 15360 MiB")


def test_engine(engine):
    Engine.objects.update(unreachable_since="2020-01-01T00:00Z")
    assert not record_engine(engine, Facts(), Probe(), {"version": "20.10"})
    assert (engine.docker_id, engine.workspace_mode, engine.disk_mode) == ("ID-1", "shared", "loop")
    assert engine.facts == {"version": "20.10"}
    assert engine.probed_at
    assert engine.unreachable_since is None
    assert record_engine(engine, replace(Facts(), engine_id="ID-2"), None, {})
    assert engine.disk_mode == "loop"


def test_the_way_of_workspaces_does_not_change_under_running_jobs(engine, environment):
    record_engine(engine, Facts(), Probe(), {})
    holder, _ = take(environment, cpu=1)
    record_engine(engine, Facts(), Probe(), {"again": True})  # the same way is no change
    before = Engine.objects.values().get(pk=engine.pk)
    for other in (Probe("archive", "watchdog"), Probe("shared", "watchdog")):
        with pytest.raises(
            ValidationError, match=r"Jobs run with the workspace shared, disk loop, .* drain the engine"
        ):
            record_engine(engine, Facts(), other, {"version": "other"})
    assert Engine.objects.values().get(pk=engine.pk) == before
    give_back(holder)
    record_engine(engine, Facts(), Probe("archive", "watchdog"), {})
    assert (engine.workspace_mode, engine.disk_mode) == ("archive", "watchdog")
