import logging

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from compute_site.core.db import constraint_name
from compute_site.core.errors import CapacityUnavailable, TransitionRefused
from compute_site.core.models import new_public_id
from environments import reservations
from environments.editing import declare_gone, drain, retire
from environments.models import (
    Device,
    FreeTier,
    Host,
    Reservation,
    ReservedAmount,
    ReservedCore,
    ReservedDevice,
)
from environments.setup import create_environment
from tests.environments.conftest import UIDS, acquire, give_back, make_engine, make_host, take


@pytest.fixture
def statements(monkeypatch) -> list[str]:
    """The prepared statements that run; they pass by Django's own log of queries."""
    seen: list[str] = []

    class Recorded(psycopg.Cursor):
        def execute(self, query, *arguments, **options):
            seen.append(query)
            return super().execute(query, *arguments, **options)

    monkeypatch.setattr("compute_site.core.db.psycopg.Cursor", Recorded)
    return seen


def counts() -> tuple[int, ...]:
    return tuple(
        model.objects.count() for model in (Reservation, ReservedAmount, ReservedCore, ReservedDevice)
    )


def refused(environment, resource, tier="paid", **asked):
    """The take is refused for `resource` and leaves nothing behind."""
    before = counts()
    with pytest.raises(CapacityUnavailable) as error:
        take(environment, tier, **asked)
    assert error.value.resource == resource
    assert counts() == before


def amount(environment, slug, tier="paid"):
    return reservations.free_amounts([environment])[environment.pk][slug].room(tier)


class TestFill:
    def test_not_asked_gets_min_and_never_starts_unpinned(self, environment):
        assert reservations.fill(environment, "paid", {}) == {
            "cpu": 1, "ram": 64, "disk": 64, "gpu": 0, "licence": 0,
        }  # fmt: skip

    def test_below_min_is_raised(self, environment):
        environment.resources.filter(slug="ram").update(min=512)
        assert reservations.fill(environment, "paid", {"ram": 100, "cpu": 0})["ram"] == 512

    def test_floor_never_passes_max(self, environment):
        environment.resources.filter(slug="disk").update(max=10)
        assert reservations.fill(environment, "paid", {})["disk"] == 10

    def test_free_tier_has_its_own_limits_and_lists(self, environment):
        assert reservations.fill(environment, "free", {"cpu": 2}) == {"cpu": 2, "ram": 64, "disk": 64}
        with pytest.raises(ValidationError) as error:
            reservations.fill(environment, "free", {"cpu": 3, "gpu": 1})
        assert error.value.message_dict == {
            "resources": [
                "gpu: no such resource here in the free tier; there are cpu, disk, ram.",
                "cpu: asked 3, at most 2 per job in the free tier.",
            ]
        }

    @pytest.mark.parametrize(
        "wrong",
        [
            "2",
            "abc",
            True,
            False,
            1.5,
            2.0,
            float("nan"),
            float("inf"),
            None,
            [],
            -1,
            5,
            2**63,
            10**4000,
            -(10**4000),
        ],
        ids=lambda wrong: str(wrong)[:8],
    )
    def test_wrong_amounts_are_refused(self, environment, wrong):
        with pytest.raises(ValidationError) as error:
            reservations.fill(environment, "paid", {"cpu": wrong})
        assert list(error.value.message_dict) == ["resources"]
        assert error.value.message_dict["resources"][0].startswith("cpu: asked ")

    def test_unknown_resource(self, environment):
        with pytest.raises(
            ValidationError, match="tpu: no such resource here; there are cpu, disk, gpu, licence, ram"
        ):
            reservations.fill(environment, "paid", {"tpu": 1})

    def test_no_free_tier_means_nothing_can_run(self, environment):
        environment.free_tier.delete()
        with pytest.raises(ValidationError, match="cpu: not offered in the free tier"):
            reservations.fill(environment, "free", {})

    def test_one_statement(self, environment, django_assert_num_queries):
        with django_assert_num_queries(1):
            reservations.fill(environment, "paid", {"cpu": 1})


class TestAcquire:
    def test_claims_exactly_what_was_asked_by_row(self, environment):
        holder, claim = take(environment, cpu=2, ram=1000, disk=2000, gpu=1, licence=2)
        reservation = Reservation.objects.get(holder=holder)
        assert claim == reservations.Claim(reservation.pk, UIDS[0], (0, 1), ("GPU-rack-a-0",))
        assert (reservation.status, reservation.tier, reservation.host) == ("held", "paid", environment.host)
        amounts = dict(reservation.amounts.values_list("resource__slug", "amount"))
        assert amounts == {"cpu": 2, "ram": 1000, "disk": 2000, "gpu": 1, "licence": 2}
        assert set(reservation.reserved_cores.values_list("core__index", flat=True)) == {0, 1}
        assert take(environment)[1].cores == (2,)

    def test_few_statements(self, environment, statements):
        take(environment, cpu=1, gpu=1)
        assert len(statements) == 6  # constraints (of the fill), lock, claim, use, devices, insert

    def test_cores_run_out(self, environment):
        take(environment, cpu=3)
        refused(environment, "cpu", cpu=2)
        take(environment, cpu=1)
        refused(environment, "cpu")

    @pytest.mark.parametrize(("slug", "total"), [("ram", 8192), ("disk", 50_000), ("licence", 3)])
    def test_environment_total(self, environment, slug, total):
        take(environment, **{slug: total - 100 if total > 100 else total})
        refused(environment, slug, **{slug: 101 if total > 100 else 1})

    @pytest.mark.parametrize(("slug", "total"), [("ram_mib", 12_000), ("disk_mib", 80_000)])
    def test_host_sum_over_environments_and_engines(self, environment, slug, total):
        """Each environment has room, the host has not: 16384 MiB and 100000 MiB less the reserve."""
        sizes = {"ram_mib": 1000, "disk_mib": 1000, slug: total}
        other = create_environment(
            make_engine(environment.host, "second"), "other", cpu=2, prices={"cpu": 1}, **sizes
        )
        kind = slug.removesuffix("_mib")
        physical = {"ram": 16_384, "disk": 100_000}[kind]
        take(other, **{kind: total})
        left = physical - total
        assert amount(environment, kind) == left
        refused(environment, kind, **{kind: left + 1})
        take(environment, **{kind: left})
        assert amount(environment, kind) == 0

    def test_a_device_in_two_environments_is_held_once(self, environment):
        other = create_environment(
            make_engine(environment.host, "second"), "other", cpu=4, ram_mib=1000, disk_mib=1000, prices={"cpu": 1},
            devices={"h200": ["GPU-rack-a-1", "GPU-rack-a-0"]},
        )  # fmt: skip
        holder, claim = take(other, h200=1)
        assert claim.devices == ("GPU-rack-a-0",)
        assert amount(environment, "gpu") == 1
        refused(environment, "gpu", gpu=2)
        assert take(environment, gpu=1)[1].devices == ("GPU-rack-a-1",)
        refused(other, "h200", h200=1)
        give_back(holder)
        assert amount(environment, "gpu") == 1

    def test_a_shared_counter_counts_everywhere_on_the_host(self, environment):
        environment.resources.filter(slug="licence").update(sharing="shared_exclusive")
        other = create_environment(
            make_engine(environment.host, "second"), "other", cpu=2, ram_mib=1000, disk_mib=1000, prices={"cpu": 1},
            counters={"licence": 3},
        )  # fmt: skip
        take(other, licence=2)
        assert amount(environment, "licence") == 3  # theirs is exclusive still
        other.resources.filter(slug="licence").update(sharing="shared_exclusive")
        assert amount(environment, "licence") == 1
        refused(environment, "licence", licence=2)

    def test_unhealthy_devices_are_not_handed_out(self, environment):
        Device.objects.filter(uuid="GPU-rack-a-0").update(health="unhealthy")
        assert take(environment, gpu=1)[1].devices == ("GPU-rack-a-1",)
        refused(environment, "gpu", gpu=1)

    def test_a_device_that_sits_elsewhere_is_not_handed_out(self, environment):
        """No door moves one that is offered; should its row say so all the same, another machine's is not ours."""
        Device.objects.update(host=make_host("rack-b"))
        with pytest.raises(CapacityUnavailable, match="needs 1 gpu, 0 free"):
            take(environment, gpu=1)

    def test_free_tier_totals(self, environment):
        take(environment, "free", cpu=1, ram=2000)
        refused(environment, "ram", "free", ram=100)
        assert amount(environment, "ram", "free") == 48
        assert amount(environment, "ram") == 6192  # a free job uses the environment's memory too
        take(environment, "paid", ram=6192)
        refused(environment, "ram", "free", ram=48 + 64)

    def test_max_jobs_of_each_tier_alone(self, environment):
        environment.max_jobs = 1
        environment.save()
        take(environment, "free")
        take(environment, "paid")
        refused(environment, "jobs", "paid")
        take(environment, "free")
        refused(environment, "jobs", "free")

    def test_max_jobs_zero(self, environment):
        environment.max_jobs = 0
        environment.save()
        refused(environment, "jobs", "paid")

    def test_a_job_seen_gone_no_longer_counts_as_a_job(self, environment):
        environment.max_jobs = 1
        environment.save()
        holder, _ = take(environment)
        with transaction.atomic():
            reservations.release_running(holder)
        take(environment)

    def test_retired_or_gone_takes_nothing(self, environment):
        amounts = reservations.fill(environment, "paid", {})
        retire(environment)
        with pytest.raises(CapacityUnavailable, match="retired"):
            acquire(environment, new_public_id(), amounts)

    def test_draining_finishes_its_queue(self, environment):
        drain(environment)
        take(environment)

    def test_host_declared_gone(self, environment, caplog):
        holder, _ = take(environment)
        assert declare_gone(environment.host, "olga")
        assert not declare_gone(environment.host, "olga")
        assert "rack-a declared gone by olga; live reservations: 1" in caplog.text
        refused(environment, "jobs")
        give_back(holder)

    def test_a_uid_comes_after_the_highest_then_from_the_lowest_gap(self, environment):
        """Uids of other ranges on the host do not count: those above are no gap of this one."""
        first, claim = take(environment, uids=(700, 3))
        found = [claim.uid, take(environment, uids=(700, 3))[1].uid]
        give_back(first)
        found += [take(environment, uids=(700, 3))[1].uid for _ in range(2)]
        assert found == [700, 701, 702, 700]

    def test_uids_of_a_range_above_are_not_counted(self, environment):
        take(environment, uids=(800, 2))
        assert [take(environment, uids=(700, 2))[1].uid for _ in range(2)] == [700, 701]

    def test_uids_run_out(self, environment):
        first, claim = take(environment, uids=(700, 2))
        assert claim.uid == 700
        assert take(environment, uids=(700, 2))[1].uid == 701
        with pytest.raises(CapacityUnavailable):
            take(environment, uids=(700, 2))
        give_back(first)
        assert take(environment, uids=(700, 2))[1].uid == 700

    def test_a_second_claim_of_one_attempt_is_refused(self, environment):
        holder, _ = take(environment)
        before = counts()
        with pytest.raises(TransitionRefused):
            acquire(environment, holder, {"cpu": 1})
        assert counts() == before

    def test_refusal_logs_one_line(self, environment, caplog):
        holder, _ = take(environment, ram=8000)
        caplog.set_level(logging.INFO)
        refused(environment, "ram", ram=1000)
        lines = [record.getMessage() for record in caplog.records]
        assert lines == [
            "not reserved: environment=main tier=paid resource=ram asked=1000 used=8000 total=8192 used_on_host=8000"
            f" physical=16384 holders={holder}"
        ]

    @pytest.mark.parametrize(
        ("tier", "asked", "told"),
        [
            ("paid", {"cpu": 4}, "tier=paid resource=cpu asked=4 used=1 total=4 used_on_host=1 physical=8"),
            ("paid", {"gpu": 2}, "tier=paid resource=gpu asked=2 used=1 total=2 used_on_host=1 physical=2"),
            ("paid", {"disk": 50_000}, "tier=paid resource=disk asked=50000 used=64 total=50000 used_on_host=64 physical=100000"),
            ("paid", {"licence": 3}, "tier=paid resource=licence asked=3 used=1 total=3 used_on_host=1 physical=None"),
            ("free", {}, "tier=free resource=jobs asked=1 used=0 total=0 used_on_host=1 physical=None"),
        ],
    )  # fmt: skip
    def test_each_refusal_logs_its_line(self, environment, caplog, tier, asked, told):
        FreeTier.objects.update(max_jobs=0)
        holder, _ = take(environment, gpu=1, licence=1)
        caplog.set_level(logging.INFO)
        with pytest.raises(CapacityUnavailable) as error:
            take(environment, tier, **asked)
        assert [record.getMessage() for record in caplog.records] == [
            f"not reserved: environment=main {told} holders={holder}"
        ]
        assert not error.value.of_host

    def test_a_free_job_is_told_what_free_jobs_use(self, environment, caplog):
        take(environment, "free", ram=1500)
        take(environment, ram=2000)
        caplog.set_level(logging.INFO)
        with pytest.raises(CapacityUnavailable):
            take(environment, "free", ram=1000)
        (line,) = [record.getMessage() for record in caplog.records]
        assert "tier=free resource=ram asked=1000 used=1500 total=2048 used_on_host=3500" in line

    def test_users_run_out_with_a_line(self, environment, caplog):
        holder, _ = take(environment, uids=(2_000_000_000, 1))
        caplog.set_level(logging.INFO)
        with pytest.raises(CapacityUnavailable, match="no numeric user is free"):
            take(environment, uids=(2_000_000_000, 1))
        assert [record.getMessage() for record in caplog.records] == [
            "not reserved: environment=main tier=paid resource=uid asked=1 used=0 total=1 used_on_host=1 physical=None"
            f" holders={holder}"
        ]

    def test_a_shortage_of_the_host_is_told_apart(self, environment):
        other = create_environment(
            environment.engine, "other", cpu="4-7", ram_mib=16_384, disk_mib=1000, prices={"cpu": 1}
        )
        take(other, ram=12_000)
        with pytest.raises(CapacityUnavailable, match="needs 5000 ram, 4384 free") as error:
            take(environment, ram=5000)
        assert error.value.of_host

    def test_no_such_host(self, db):
        with transaction.atomic(), pytest.raises(Host.DoesNotExist):
            reservations.lock_host(1)


class TestRelease:
    def test_running_then_rest(self, environment):
        holder, _ = take(environment, cpu=4, ram=8192, disk=50_000, gpu=2, licence=3)
        with transaction.atomic():
            assert reservations.release_running(holder)
        found = {slug: amount(environment, slug) for slug in ("cpu", "ram", "disk", "gpu", "licence")}
        assert found == {"cpu": 4, "ram": 8192, "disk": 0, "gpu": 2, "licence": 3}
        reservation = Reservation.objects.get(holder=holder)
        assert reservation.status == "held"
        assert reservation.exited_at
        with transaction.atomic():
            assert reservations.release_rest(holder)
        assert amount(environment, "disk") == 50_000
        reservation.refresh_from_db()
        assert (reservation.status, reservation.released_at is None) == ("released", False)
        assert not ReservedAmount.objects.filter(released_at=None).exists()

    def test_twice_is_harmless(self, environment):
        holder, _ = take(environment)
        give_back(holder)
        rows = list(ReservedAmount.objects.values()), list(Reservation.objects.values())
        with transaction.atomic():
            assert not reservations.release_running(holder)
            assert not reservations.release_rest(holder)
            assert not reservations.release_rest(holder, never_started=True)
            assert not reservations.revoke(holder)
        assert rows == (list(ReservedAmount.objects.values()), list(Reservation.objects.values()))

    def test_of_an_unknown_holder(self, db):
        with transaction.atomic():
            assert not reservations.release_running(new_public_id())
            assert not reservations.release_rest(new_public_id())

    def test_rest_is_refused_while_it_runs(self, environment):
        holder, _ = take(environment)
        with pytest.raises(TransitionRefused), transaction.atomic():
            reservations.release_rest(holder)
        assert Reservation.objects.get(holder=holder).released_at is None

    def test_never_started_gives_back_all_at_once(self, environment):
        holder, _ = take(environment, cpu=4, gpu=2)
        with transaction.atomic():
            assert reservations.release_rest(holder, never_started=True)
        assert amount(environment, "cpu") == 4
        assert not ReservedDevice.objects.filter(released_at=None).exists()
        assert not ReservedAmount.objects.filter(released_at=None).exists()

    def test_revoked_keeps_everything_claimed(self, environment):
        holder, _ = take(environment, cpu=3)
        assert reservations.revoke(holder)
        assert not reservations.revoke(holder)
        assert amount(environment, "cpu") == 1
        give_back(holder)
        assert Reservation.objects.get(holder=holder).status == "released"
        assert amount(environment, "cpu") == 4


class TestConstraints:
    """PostgreSQL refuses even where the code is wrong."""

    def broken(self, name, write):
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            write()
        assert constraint_name(error.value) == name

    def test_one_live_core_device_uid_and_attempt(self, environment):
        holder, _ = take(environment, gpu=1)
        one = Reservation.objects.get(holder=holder)
        core, device = one.reserved_cores.get().core, one.reserved_devices.get()
        fresh = {"host": one.host, "environment": environment, "tier": "paid"}
        self.broken("core_once_live", lambda: ReservedCore.objects.create(reservation=one, core=core))
        self.broken("device_once_live", lambda: ReservedDevice.objects.create(
            reservation=one, resource=device.resource, device=device.device))  # fmt: skip
        self.broken("reservation_uid_once_live", lambda: Reservation.objects.create(
            holder=new_public_id(), uid=one.uid, **fresh))  # fmt: skip
        self.broken("reservation_once_per_attempt", lambda: Reservation.objects.create(
            holder=holder, uid=1, **fresh))  # fmt: skip

    def test_closed_lists_and_released_exactly_when(self, environment):
        holder, _ = take(environment)
        rows = Reservation.objects.filter(holder=holder)
        self.broken("reservation_status_known", lambda: rows.update(status="lost"))
        self.broken("reservation_tier_known", lambda: rows.update(tier="gift"))
        self.broken("reservation_released_exactly_when_released", lambda: rows.update(status="released"))
        negative = ReservedAmount.objects.filter(reservation__holder=holder)
        with pytest.raises(IntegrityError), transaction.atomic():
            negative.update(amount=-1)


class TestUse:
    def test_maps_name_who_has_and_who_holds(self, environment):
        holder, _ = take(environment, cpu=1, gpu=1)
        cores = reservations.core_map(environment.host)
        assert [place.name for place in cores] == [str(index) for index in range(8)]
        assert (cores[0].holder, cores[0].environments) == (holder, ("local/main",))
        assert (cores[4].holder, cores[4].environments) == (None, ())
        devices = reservations.device_map(environment.host)
        assert [(place.name, place.holder) for place in devices] == [
            ("GPU-rack-a-0", holder),
            ("GPU-rack-a-1", None),
        ]

    def test_free_is_never_negative_and_shown_capped(self, environment):
        take(environment, ram=8000)
        Host.objects.update(memory_mib=5000)
        use = reservations.free_amounts([environment])[environment.pk]["ram"]
        assert (use.free, use.free_tier_free, use.offered) == (0, 0, 3976)

    def test_one_statement_for_many(self, environment, statements):
        assert set(reservations.free_amounts([environment])[environment.pk]) == {
            "cpu",
            "ram",
            "disk",
            "gpu",
            "licence",
        }
        assert len(statements) == 1
