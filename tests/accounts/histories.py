"""Random histories of a small site, each step by the function that really does it.

After every step the accounts are counted anew from the raw rows, beside what the history itself remembers: which
attempts hold all that their jobs asked for, and which only disk any more.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from compute_site.core.db import ClockTimestamp, database_now
from compute_site.core.errors import Rejected, StaleToken, TransitionRefused
from environments import editing, reservations
from environments.devices import record_devices
from environments.models import Device, Engine, Environment, Reservation
from jobs.cancellation import cancel
from jobs.models import Attempt, Job
from jobs.models.attempt import FINAL, UNFINISHED
from jobs.outcome import Outcome
from jobs.retention import expire_queued
from jobs.settlement import settle
from jobs.transitions import move_attempt
from tests.accounts import edits
from tests.accounts.asks import Ask, asks
from tests.accounts.money import money_faults
from tests.accounts.recount import Rows, read
from tests.accounts.told import assert_told_as_it_is
from tests.accounts.world import Docker, World, make_world, run_of
from workers import claims, cleaning, exits, lifecycle, reclaim, runner, scheduling, steps
from workers.fsck import row_disagreements
from workers.models import Worker


@dataclass(frozen=True)
class End:
    """How an attempt that ran comes to its end."""

    reason: str = "succeeded"
    code: int = 0
    ran: float | None = 1.0


ENDS = [
    End(),
    End("exit_nonzero", 1, 61.0),
    End("out_of_memory", 137, None),
    End("engine_lost", 0, 5.0),
    End(ran=700.0),
]
BEFORE = ("preparing", "created", "starting")
REFUSALS = (ValidationError, Rejected, TransitionRefused)
any_one = st.integers(0, 11)  # which of those that are there; taken modulo their number
TABLES = [
    *("environments_" + name for name in ("host", "core", "device", "engine", "environment", "resource")),
    *("environments_" + name for name in ("resourcedevice", "freetier", "freeresource", "reservation")),
    *("environments_" + name for name in ("reservedamount", "reservedcore", "reserveddevice")),
    *("jobs_" + name for name in ("job", "attempt", "jobevent")),
    *("billing_" + name for name in ("hold", "balance", "ledgertransaction", "ledgerentry")),
]
ALL_ROWS = " UNION ALL ".join(
    f"SELECT '{table}', md5(string_agg((to_jsonb(t) - 'passed_over_since')::text, '' ORDER BY id)) FROM {table} t"
    for table in TABLES
)


@dataclass
class Facts:
    """A device as its driver reports it."""

    uuid: str
    model: str = "H200"
    memory_mib: int = 80_000
    driver_version: str = ""


def prepare(settings: Any) -> None:
    """Make the world of all histories, in a test with a database. `settings` is pytest-django's fixture."""
    settings.RETRY_BACKOFF_SECONDS = 0
    settings.WORKER_TTL_SECONDS = 3600  # nobody beats here: only who is made to is lost
    Histories.world = make_world()
    Histories.seen.clear()


def everything() -> Any:
    """All rows that a refusal must leave as they are."""
    with connection.cursor() as cursor:
        cursor.execute(ALL_ROWS)
        return cursor.fetchall()


def pick(rows: Any, number: int) -> Any:
    found = list(rows.order_by("pk"))
    return found[number % len(found)] if found else None


class Histories(RuleBasedStateMachine):
    """One history: begins with the world as it was made and is rolled back in the end."""

    world: ClassVar[World]
    seen: ClassVar[Counter[str]] = Counter()  # what all histories came by, for whoever reads along

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, str] = {}  # by attempt: all, or disk
        self.workers: dict[int, Worker] = {worker.engine_id: worker for worker in self.world.workers}
        self.undone = transaction.atomic()
        self.undone.__enter__()

    @initialize(asks=st.lists(asks, min_size=3, max_size=9))
    def begin(self, asks: list[Ask]) -> None:
        """Some jobs run already."""
        self.submit(asks)
        for number in range(len(self.world.engines)):
            self.take(number, 2)

    # -- what clients do

    @rule(asks=st.lists(asks, min_size=1, max_size=3))
    def submit(self, asks: list[Ask]) -> None:
        for ask in asks:
            self.refused_whole(partial(ask.submit, self.world.user))

    @rule(which=any_one, operator=st.booleans())
    def cancel(self, which: int, operator: bool) -> None:
        if (job := pick(Job.objects.filter(cancel_requested_at=None, finished_at=None), which)) is not None:
            cancel(job, "ada", operator=operator)

    # -- what workers do

    @rule(engine=any_one, times=st.integers(1, 3))
    def take(self, engine: int, times: int) -> None:
        """What is taken was waiting and fits, and when nothing is taken nothing that waits would fit."""
        row = self.world.engines[engine % len(self.world.engines)]
        row.refresh_from_db()
        for _ in range(times):
            before, waiting = everything(), self.those_that_fit(row)
            taken = scheduling.take(row, self.workers[row.pk])
            if taken is None:
                assert not waiting
                assert everything() == before
                return
            assert taken.attempt.job_id in waiting
            self.held[taken.attempt.pk] = "all"
            self.seen["taken"] += 1

    @rule(
        steps_on=st.lists(
            st.tuples(any_one, st.integers(0, 4), st.sampled_from(ENDS)), min_size=1, max_size=4
        )
    )
    def go_on(self, steps_on: list[tuple[int, int, End]]) -> None:
        """The next step, or a few, of some attempts: to the start, the exit, the settlement, the clean end."""
        for which, count, end in steps_on:
            attempt = pick(Attempt.objects.filter(cleaned_at=None).select_related("engine"), which)
            for _ in range(count if attempt is not None else 0):
                self.step(attempt, end)
                attempt.refresh_from_db()

    def step(self, attempt: Attempt, end: End) -> None:
        if attempt.status == "running":
            self.see_exit(attempt, end.code)
        elif attempt.status == "collecting":
            assert settle(attempt, None, Outcome(reason=end.reason, run_seconds=end.ran))
        elif attempt.lease is None:
            claims.claim_step(Docker(attempt.engine), self.workers[attempt.engine_id])  # type: ignore[arg-type]
        elif attempt.status in FINAL and attempt.cleaned_at is None:
            cleaning.clean(run_of(attempt))
            self.held.pop(attempt.pk)
            self.seen["cleaned"] += 1
        elif attempt.status == "starting":
            steps._start(run_of(attempt), "created")
        elif attempt.status in BEFORE:
            assert move_attempt(attempt, BEFORE[BEFORE.index(attempt.status) + 1], lease=attempt.lease)

    @rule(
        which=any_one,
        how=st.sampled_from(["registry_unavailable", "image_not_found", "given up", "seen exited"]),
    )
    def end_before_the_start_is_known(self, which: int, how: str) -> None:
        rows = Attempt.objects.filter(status__in=BEFORE, lease__isnull=False).select_related("engine")
        if (attempt := pick(rows, which)) is None:
            return
        if how == "seen exited":
            self.see_exit(attempt, 0)
        elif how == "given up":
            assert runner._give_up(run_of(attempt))
            assert Reservation.objects.get(holder=attempt.public_id).status == "revoked"
        else:
            assert runner._end(run_of(attempt), Outcome(reason=how))

    @rule(engine=any_one, silent=st.booleans())
    def lose_the_worker(self, engine: int, silent: bool) -> None:
        """It goes silent or is superseded; its leases are void, and the next worker claims the same attempts."""
        row = self.world.engines[engine % len(self.world.engines)]
        if silent:
            old = self.workers[row.pk]
            Worker.objects.filter(pk=old.pk).update(heartbeat_at=ClockTimestamp() - timedelta(days=1))
            assert lifecycle.mark_lost() == [old.pk]
        self.workers[row.pk] = lifecycle.register(row)

    @rule(which=any_one)
    def deliver_twice(self, which: int) -> None:
        """Late and doubled messages about whatever attempt there ever was change nothing that they must not."""
        attempt = pick(Attempt.objects.select_related("job", "engine"), which)
        if attempt is None:
            return
        before = everything()
        if attempt.status in (*FINAL, "collecting"):
            self.see_exit(attempt, 0)
        if attempt.status in FINAL:
            assert not settle(attempt, None, Outcome(reason="succeeded"))
        if attempt.cleaned_at is not None:
            with transaction.atomic():
                assert not reservations.release_running(attempt.public_id)
                assert not reservations.release_rest(attempt.public_id, never_started=True)
            assert not reservations.revoke(attempt.public_id)
        if attempt.status in UNFINISHED and self.held[attempt.pk] == "all":
            self.refused(lambda: release_rest(attempt))
        assert everything() == before

    # -- what the site's clock and its operators do

    @rule()
    def expire(self) -> None:
        expire_queued(now=database_now() + timedelta(days=1))

    @rule(there=st.sets(st.sampled_from(["one-0", "one-1", "one-2"])))
    def look_for_devices(self, there: set[str]) -> None:
        record_devices(self.world.hosts[0], [Facts(uuid) for uuid in sorted(there)])

    @rule(where=any_one, edit=edits.edits)
    def edit(self, where: int, edit: edits.Edit) -> None:
        """An operator's edit: accepted, or refused with nothing changed."""
        environment = Environment.objects.select_related("engine__host").get(
            pk=self.world.environments[where % len(self.world.environments)].pk
        )
        self.refused_whole(lambda: edit(environment))

    @rule(reclaims=st.booleans())
    def lose_a_host(self, reclaims: bool) -> None:
        """An operator says that it is gone: what it held is released, and that alone, once it is reclaimed."""
        editing.declare_gone(self.world.hosts[1], "olga")
        if reclaims:
            reclaim.reclaim_gone_hosts()
            there = Attempt.objects.filter(engine=self.world.engines[2]).values_list("pk", flat=True)
            self.held = {key: what for key, what in self.held.items() if key not in set(there)}

    # -- what must always be so

    @invariant()
    def the_rows_keep_every_promise(self) -> None:
        self.seen["looks"] += 1
        self.seen[f"looks at {len(self.held)} live"] += 1
        rows = self.rows()
        assert list(rows.faults()) == []
        with connection.cursor() as cursor:
            assert list(money_faults(cursor)) == []
        assert list(row_disagreements()) == []
        connection.check_constraints()
        self.what_is_held_is_what_was_asked(rows)
        assert_told_as_it_is(rows, self.world.environments)

    def what_is_held_is_what_was_asked(self, rows: Rows) -> None:
        """A queued job uses nothing, a reserved one exactly its terms, from then until it is known to be gone."""
        holders = {row["holder"]: row for row in rows.reservations.values()}
        attempts = Attempt.objects.select_related("job").in_bulk(self.held)
        assert set(holders) == {attempt.public_id for attempt in attempts.values()}
        for attempt in attempts.values():
            key = holders[attempt.public_id]["id"]
            found = {
                rows.resources[row["resource_id"]]["slug"]: row["amount"]
                for row in rows.live("reservedamount")
                if row["reservation_id"] == key
            }
            asked = {slug: amount for slug, amount in attempt.job.terms["resources"].items() if amount}
            assert found == (asked if self.held[attempt.pk] == "all" else {"disk": asked["disk"]})

    def teardown(self) -> None:
        """All that is under way comes to its end, and then nothing is held; a history that failed is only undone."""
        try:
            if sys.exc_info()[0] is None:
                self.wind_up()
        finally:
            transaction.set_rollback(True)
            self.undone.__exit__(None, None, None)
            for row in (*self.world.hosts, *self.world.engines):
                row.refresh_from_db()

    def wind_up(self) -> None:
        for attempt in Attempt.objects.filter(status__in=UNFINISHED):
            self.see_exit(attempt, 0)
            settle(attempt, None, Outcome(reason="succeeded", run_seconds=1.0))
        for engine in self.world.engines:
            self.workers[engine.pk] = lifecycle.register(engine)
        for attempt in Attempt.objects.filter(cleaned_at=None):
            Attempt.objects.filter(pk=attempt.pk).update(lease=attempt.token)
            attempt.refresh_from_db()
            cleaning.clean(run_of(attempt))
        self.held.clear()
        self.the_rows_keep_every_promise()
        assert self.rows().used.total() == 0
        assert not Device.objects.filter(reserved__released_at=None, reserved__isnull=False).exists()

    # -- in pieces

    @classmethod
    def told(cls) -> str:
        """How much was tried, in words."""
        return ", ".join(f"{number} {what}" for what, number in sorted(cls.seen.items()))

    def rows(self) -> Rows:
        with connection.cursor() as cursor:
            return read(cursor)

    def those_that_fit(self, engine: Engine) -> set[int]:
        """Keys of the engine's queued jobs that could be reserved for now, as the rows say."""
        rows = self.rows()
        queued = Job.objects.filter(status="queued", environment__engine=engine)
        if engine.state != "active":
            return set()
        return {job.pk for job in queued if rows.fits(job.environment_id, job.tier, job.terms["resources"])}

    def see_exit(self, attempt: Attempt, code: int) -> None:
        docker = Docker(attempt.engine, code)
        if exits.record_exit(docker, attempt, docker.exited(attempt, database_now())):  # type: ignore[arg-type]
            self.held[attempt.pk] = "disk"

    def refused_whole(self, what: Callable[[], Any]) -> None:
        """Done, or refused with no row changed."""
        before = everything()
        try:
            with transaction.atomic():
                what()
        except REFUSALS:
            self.seen["refused"] += 1
            assert everything() == before

    def refused(self, what: Callable[[], Any]) -> None:
        try:
            with transaction.atomic():
                what()
        except (StaleToken, TransitionRefused):
            return
        raise AssertionError("that had to be refused")


def release_rest(attempt: Attempt) -> bool:
    return reservations.release_rest(attempt.public_id)
