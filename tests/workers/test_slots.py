"""Several workers of one engine: who may come, what each takes, and what each leaves to the others."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.db.models import F

from compute_site.core.db import database_now
from environments.models import Core, Device, Engine, Environment, Reservation, Slots, SlotSet
from environments.setup import create_environment
from jobs.models import Attempt, Job
from jobs.pending import pending_reason
from tests.factories import Site, make_account, make_site, make_user, submit
from workers import lifecycle, peers, presence, scheduling, tasks, turns
from workers.claims import claim_step
from workers.lifecycle import SlotsTaken
from workers.management.commands.engine_worker import Command
from workers.models import Worker
from workers.peers import Peers


def cores(*indexes: int) -> SlotSet:
    return SlotSet(frozenset(indexes), frozenset())


def register(site: Site, *indexes: int) -> Worker:
    return lifecycle.register(site.engine, cores(*indexes))


def next_job(worker: Worker) -> Job | None:
    taken = scheduling.take(worker.engine, worker)
    return taken.attempt.job if taken else None


def waits_long(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(passed_over_since=database_now() - timedelta(days=1))
    return job


def statuses() -> list[str]:
    return list(Worker.objects.order_by("pk").values_list("status", flat=True))


def live_slots() -> list[str]:
    rows = Slots.objects.filter(released_at=None).order_by("pk")
    return [row.members.core_text for row in rows]


# -- who may come


def test_workers_of_other_slots_live_side_by_side(site):
    first, second = register(site, 0, 1), register(site, 2, 3)
    assert statuses() == ["online", "online"]
    assert [lifecycle.heartbeat(first), lifecycle.heartbeat(second)] == [True, True]


def test_a_newcomer_on_the_same_slots_supersedes_and_leaves_the_others_alone(site):
    old, other = register(site, 0, 1), register(site, 2, 3)
    new = register(site, 1, 0)
    assert statuses() == ["lost", "online", "online"]
    old.refresh_from_db()
    assert old.superseded_by == new
    assert [lifecycle.heartbeat(other), lifecycle.heartbeat(old)] == [True, False]
    assert live_slots() == ["2-3", "0-1"]


@pytest.mark.parametrize(
    ("there", "comes", "named"),
    [
        (cores(0, 1, 2), cores(1, 2, 3), "core 1 of engine local is a slot of worker"),
        (SlotSet(), cores(2), "core 2 of engine local is a slot of worker"),
        (cores(2), SlotSet(), "core 2 of engine local is a slot of worker"),
        (cores(0, 1), cores(0), "which has cores 0-1 and devices none"),
    ],
)
def test_who_overlaps_is_refused_by_name_and_nothing_is_written(site, there, comes, named):
    old = lifecycle.register(site.engine, there)
    with pytest.raises(SlotsTaken, match=named) as refusal:
        lifecycle.register(site.engine, comes)
    assert f"{old.short_id} ({old.hostname}:{old.pid})" in str(refusal.value)
    assert (statuses(), Slots.objects.count()) == (["online"], 1)
    assert lifecycle.heartbeat(old)


def test_a_device_that_overlaps_is_named(site):
    gpu = Device.objects.create(host=site.host, uuid="GPU-5d1f")
    lifecycle.register(site.engine, SlotSet(frozenset({0}), frozenset({gpu.pk})))
    with pytest.raises(SlotsTaken, match="device GPU-5d1f of engine local"):
        lifecycle.register(site.engine, SlotSet(frozenset({1}), frozenset({gpu.pk})))


def test_slots_are_free_when_their_worker_ended_or_has_been_silent_for_too_long(site, settings):
    lifecycle.stop(register(site, 0, 1))
    killed = register(site, 1, 2)
    Worker.objects.filter(pk=killed.pk).update(
        heartbeat_at=database_now() - timedelta(seconds=settings.WORKER_TTL_SECONDS + 1)
    )
    lost = register(site, 4)
    Worker.objects.filter(pk=lost.pk).update(heartbeat_at=database_now() - timedelta(days=1))
    assert sorted(lifecycle.mark_lost()) == [killed.pk, lost.pk]
    assert live_slots() == []
    silent = register(site, 2, 3)
    Worker.objects.filter(pk=silent.pk).update(heartbeat_at=database_now() - timedelta(days=1))
    register(site, 3, 4)  # although the periodic pass has not come by
    assert statuses() == ["stopped", "lost", "lost", "lost", "online"]
    assert live_slots() == ["3-4"]


def in_threads(*calls: Any) -> list[Any]:
    """What each call returned or raised; all begin at once, each with a connection of its own."""
    together = threading.Barrier(len(calls))

    def go(call: Any) -> Any:
        try:
            together.wait(10)
            return call()
        except Exception as error:  # noqa: BLE001 - handed to the test
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(go, calls))


@pytest.fixture
def slow_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look who is there and the own row passes so much time that the other looks too, if it may."""
    real = lifecycle.superseded

    def slow(engine: Engine, slots: SlotSet) -> list[Worker]:
        found = real(engine, slots)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(lifecycle, "superseded", slow)


def test_of_two_that_start_at_one_instant_and_overlap_one_is_refused(transactional_db, slow_check):
    site = make_site()
    outcomes = in_threads(lambda: register(site, 0, 1), lambda: register(site, 1, 2))
    (refusal,) = [one for one in outcomes if isinstance(one, Exception)]
    assert isinstance(refusal, SlotsTaken)
    assert "core 1 of engine local" in str(refusal)
    assert statuses() == ["online"]


def test_of_two_that_start_at_one_instant_on_the_same_slots_one_is_superseded(transactional_db, slow_check):
    site = make_site()
    outcomes = in_threads(lambda: register(site, 0, 1), lambda: register(site, 0, 1))
    assert all(isinstance(one, Worker) for one in outcomes)
    assert statuses() == ["lost", "online"]


def test_the_command_says_what_is_wrong_before_anything_starts(site, capsys):
    register(site, 0)
    for given, words in (
        (("8", None), "--cores: Host host-local has no core 8"),
        ((None, None), "core 0 of engine local is a slot of worker"),
        (("1", "GPU-x"), "--devices: Host host-local has no device GPU-x; it has none."),
    ):
        with pytest.raises(CommandError, match=words):
            Command()._slots(site.engine, *given)
    assert Command()._slots(site.engine, "1-2", None) == cores(1, 2)
    assert "cores 1-2, devices none" in capsys.readouterr().out
    assert statuses() == ["online"]


# -- what each takes


def test_workers_that_take_at_once_never_cross(transactional_db):
    site = make_site()
    user = make_user("ada")
    make_account("ada's", user)
    for _ in range(6):
        submit(user)
    low, high = register(site, 0, 1), register(site, 2, 3)

    def take_all(worker: Worker) -> list[int]:
        found: list[int] = []
        while taken := scheduling.take(worker.engine, worker):
            found += taken.attempt.cores
        return found

    outcomes = in_threads(lambda: take_all(low), lambda: take_all(high))
    assert [sorted(found) for found in outcomes] == [[0, 1], [2, 3]]


def test_a_worker_takes_from_every_environment_what_its_slots_have(site, user, account):
    other = create_environment(
        site.engine, "other", cpu="4-7", ram_mib=1024, disk_mib=1000, prices={"cpu": 1}
    )
    worker = register(site, 3, 4)
    submit(user), submit(user), submit(user, environment=str(other))
    taken = [scheduling.take(site.engine, worker) for _ in range(3)]
    assert [one.attempt.cores if one else None for one in taken] == [[3], [4], None]


def test_engines_of_one_host_cannot_cross_even_when_their_workers_name_the_same_cores(site, user, account):
    two = Engine.objects.create(host=site.host, name="two", endpoint="unix:///x.sock", state="active")
    other = create_environment(two, "other", cpu="4-7", ram_mib=1024, disk_mib=1000, prices={"cpu": 1})
    first = lifecycle.register(site.engine, cores(3, 4))
    second = lifecycle.register(two, cores(3, 4))
    submit(user), submit(user), submit(user, environment=str(other)), submit(user, environment=str(other))
    assert [next_job(first) is not None, next_job(second) is not None] == [True, True]
    assert [next_job(first), next_job(second)] == [None, None]
    assert sorted(Attempt.objects.values_list("cores", flat=True)) == [[3], [4]]


def test_any_worker_goes_on_with_what_another_took(site, user, account):
    submit(user)
    low, high = register(site, 0), register(site, 1)
    link: Any = SimpleNamespace(engine=site.engine)
    assert next_job(low) is not None
    assert claim_step(link, high) is None  # it is leased
    Worker.objects.filter(pk=low.pk).update(heartbeat_at=database_now() - timedelta(days=1))
    lifecycle.mark_lost()
    run = claim_step(link, high)
    assert run is not None
    assert (run.attempt.cores, run.attempt.lease_worker) == ([0], high.pk)


# -- what each leaves to the others


def test_what_no_worker_can_take_waits_says_so_and_blocks_nothing(site, user, account):
    large = waits_long(submit(user, resources={"cpu": 2}))
    small = submit(user)
    worker = register(site, 0)
    assert "no live worker has slots for 2 cpu, at most 1" in (pending_reason(large) or "")
    assert pending_reason(small) == "second in line"
    assert next_job(worker) == small
    large.refresh_from_db()
    assert large.status == "queued"


def test_its_turn_is_not_counted_while_nobody_could_take_it(site, user, account):
    large = submit(user, resources={"cpu": 2})
    assert next_job(register(site, 0)) is None
    large.refresh_from_db()
    assert large.passed_over_since is None


def test_a_long_queue_that_is_for_others_hides_nothing(site, user, account):
    for _ in range(turns.CANDIDATES + 1):
        submit(user, resources={"cpu": 2})
    Job.objects.update(passed_over_since=F("created_at"))
    small = submit(user)
    assert next_job(register(site, 0)) == small


def test_what_is_free_behind_a_long_queue_is_counted_in_the_worker_s_slots(site, user, account):
    worker = register(site, 0, 1)
    first = submit(user)
    assert next_job(worker) == first  # of its two cores one is free, of the environment's four three
    for _ in range(turns.CANDIDATES + 1):
        submit(user, resources={"cpu": 2})
    small = submit(user)
    assert next_job(worker) == small


def test_what_waits_too_long_for_the_worker_s_own_slots_closes_its_queue(site, user, account):
    worker = register(site, 0, 1)
    first = submit(user)
    assert next_job(worker) == first
    waits_long(submit(user, resources={"cpu": 2}))
    submit(user)
    assert next_job(worker) is None


def test_what_waits_too_long_for_another_worker_is_left_the_memory_that_they_share(site, user, account):
    """The environment has 8192 MiB; the large job needs 6000 of them, and cores that only the other worker has."""
    low, high = register(site, 0), register(site, 1, 2)
    busy = submit(user, resources={"cpu": 1, "ram": 100})
    assert next_job(high) == busy
    large = submit(user, resources={"cpu": 2, "ram": 6000})
    hungry = submit(user, resources={"cpu": 1, "ram": 2500})
    modest = submit(user, resources={"cpu": 1, "ram": 2000})
    waits_long(large)
    assert next_job(high) is None
    assert next_job(low) == modest
    hungry.refresh_from_db()
    assert (hungry.status, Reservation.objects.count()) == ("queued", 2)


def test_the_same_memory_is_not_left_to_a_job_that_nobody_could_take(site, user, account):
    low = register(site, 0)
    waits_long(submit(user, resources={"cpu": 2, "ram": 6000}))
    hungry = submit(user, resources={"cpu": 1, "ram": 2500})
    assert next_job(low) == hungry


def test_free_jobs_leave_memory_to_a_free_one_and_paid_jobs_leave_none(site, user, account):
    low = register(site, 0)
    register(site, 1, 2)
    waits_long(submit(user, tier="free", resources={"cpu": 2, "ram": 4096}))
    submit(user, tier="free", resources={"cpu": 1, "ram": 64})
    assert next_job(low) is None
    paid = submit(user, resources={"cpu": 1, "ram": 8000})
    assert next_job(low) == paid


def test_a_seat_is_left_too(site, user, account):
    low = register(site, 0)
    register(site, 1, 2)
    Environment.objects.filter(pk=site.environment.pk).update(max_jobs=1)
    large = submit(user, resources={"cpu": 2})
    submit(user)
    waits_long(large)
    assert next_job(low) is None
    Job.objects.filter(pk=large.pk).update(passed_over_since=None)
    assert next_job(low) is not None


# -- one hears, all know


def test_a_knock_is_passed_on_once(site, monkeypatch):
    told: list[str] = []
    deed = SimpleNamespace
    here: Any = deed(
        worker=deed(engine_id=site.engine.pk),
        watcher=deed(poke=lambda: told.append("watcher")),
        hands=deed(ask=lambda: told.append("hands")),
        peers=deed(tell=lambda: told.append("peers")),
    )
    monkeypatch.setattr(presence, "_here", here)
    tasks.knock(site.engine.pk)
    tasks.knock(site.engine.pk, True)
    assert told == ["watcher", "hands", "peers", "watcher", "hands"]


def test_peers_are_told_at_their_queues_and_once_more_at_the_end(transactional_db, monkeypatch):
    site = make_site()
    low = register(site, 0)
    register(site, 2, 1)
    knocks: list[str] = []
    heard = threading.Event()

    def knock(engine: Engine, queue: str) -> None:
        knocks.append(queue)
        heard.set()

    monkeypatch.setattr(peers, "knock", knock)
    crew = Peers(low.slots)
    crew.start()
    crew.tell()
    assert heard.wait(10)
    crew.stop()
    assert knocks == ["engine.local.1", "engine.local.1"]


def test_who_has_all_of_the_engine_needs_no_thread(site):
    crew = Peers(lifecycle.register(site.engine).slots)
    crew.start()
    crew.tell()
    crew.stop()
    assert not crew._thread.is_alive()


# -- what the operator sees


def test_the_operator_sees_the_slots(site, admin_client):
    gpu = Device.objects.create(host=site.host, uuid="GPU-0000-5d1f77aa")
    narrow = lifecycle.register(site.engine, SlotSet(frozenset({0, 1, 2, 7}), frozenset({gpu.pk})))
    listed = admin_client.get("/admin/workers/worker/").content.decode()
    page = admin_client.get(f"/admin/workers/worker/{narrow.pk}/change/").content.decode()
    for text in (listed, page):
        assert "0-2,7" in text
        assert "5d1f77aa" in text
    host = admin_client.get(f"/admin/environments/host/{site.host.pk}/change/").content.decode()
    assert host.count(f"slot of worker {narrow.slots.holder}") == 3  # core 7 belongs to no environment
    assert Core.objects.filter(environment=None).count() == 4
