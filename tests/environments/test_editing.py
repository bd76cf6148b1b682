import pytest
from django.core.exceptions import ValidationError

from compute_site.core.errors import TransitionRefused
from compute_site.core.models import save_clean
from environments import core_words, editing
from environments.models import Core, Engine, Environment, Host, Resource
from environments.rules import check_host
from environments.setup import create_environment
from tests.environments.conftest import give_back, make_engine, place_cores, take


def cores(environment) -> list[int]:
    return list(environment.cores.order_by("index").values_list("index", flat=True))


def refused(environment, action, words, key):
    """The edit is refused for `key` and changes nothing."""
    before = (
        Environment.objects.values().get(pk=environment.pk),
        cores(environment),
        list(environment.resources.values()),
    )
    with pytest.raises(ValidationError) as error:
        action()
    assert words in " ".join(error.value.message_dict[key]), error.value.message_dict
    assert before == (
        Environment.objects.values().get(pk=environment.pk), cores(environment), list(environment.resources.values())
    )  # fmt: skip


class TestCores:
    def test_named_cores_decide_and_the_total_follows(self, environment):
        version = environment.version
        place_cores(environment, "2-6")
        assert cores(environment) == [2, 3, 4, 5, 6]
        cpu = environment.resources.get(slug="cpu")
        assert (cpu.total, cpu.max) == (5, 5)
        assert environment.version == version + 1
        place_cores(environment, [0, 1, 7])
        assert cores(environment) == [0, 1, 7]

    def test_a_max_below_the_total_stays(self, environment):
        environment.resources.filter(slug="cpu").update(max=2)
        place_cores(environment, "0-4")
        assert environment.resources.values_list("total", "max").get(slug="cpu") == (5, 2)
        refused(
            environment,
            lambda: place_cores(environment, "0"),
            "2 is more than the total",
            "resources.cpu.max",
        )

    def test_core_of_another_environment(self, environment, host):
        create_environment(
            make_engine(host, "second"), "other", cpu="4-5", ram_mib=64, disk_mib=1, prices={"cpu": 1}
        )
        words = "Core 5 belongs to second/other; take it out there first."
        refused(environment, lambda: place_cores(environment, "0-3,5"), words, "cores")

    @pytest.mark.parametrize("wrong", ["0-8", "x", [1, 1], [True], "", [-1]])
    def test_wrong_cores(self, environment, wrong):
        key = "resources" if wrong == "" else "cores"
        with pytest.raises(ValidationError) as error:
            place_cores(environment, wrong)
        assert set(error.value.message_dict) & {key, "free_tier.resources.cpu.total"}
        assert cores(environment) == [0, 1, 2, 3]

    def test_held_cores_stay(self, environment):
        holder, _ = take(environment, cpu=2)
        words = "Cores 1 are held by running jobs and cannot be taken away; drain"
        refused(environment, lambda: place_cores(environment, "0,2-3"), words, "cores")
        give_back(holder)
        place_cores(environment, "0,2-3")

    def test_total_takes_the_lowest_free_and_keeps_held_ones(self, environment):
        editing.set_core_total(environment, 6)
        assert cores(environment) == [0, 1, 2, 3, 4, 5]
        first, _ = take(environment, cpu=4)
        take(environment, cpu=2)
        give_back(first)
        editing.set_core_total(environment, 2)
        assert cores(environment) == [4, 5]
        words = "Cores 5 are held by running jobs"
        environment.free_tier.delete()
        refused(environment, lambda: editing.set_core_total(environment, 1), words, "cores")

    @pytest.mark.parametrize(("total", "words"), [(9, "9 cores are asked, 8 of the 8 of rack-a are free"), (0, "Found 0"),
                                                  (True, "Found true"), (2.0, "Found 2.0"), (-1, "Found -1")])  # fmt: skip
    def test_totals_that_cannot_be(self, environment, total, words):
        refused(environment, lambda: editing.set_core_total(environment, total), words, "cores")

    def test_cores_beyond_the_hosts_count_do_not_exist(self, environment, host):
        Core.objects.create(host=host, index=8)
        refused(
            environment,
            lambda: place_cores(environment, "0-8"),
            "rack-a has no core 8; it has 0-7",
            "cores",
        )


class TestStates:
    def test_every_pair(self, environment):
        actions = {"active": editing.resume, "draining": editing.drain, "retired": editing.retire}
        allowed = {
            ("active", "draining"),
            ("draining", "active"),
            ("active", "retired"),
            ("draining", "retired"),
        }
        for source in actions:
            for target, action in actions.items():
                Environment.objects.filter(pk=environment.pk).update(state=source)
                Core.objects.filter(host=environment.host, index__lt=4).update(environment=environment)
                if (source, target) in allowed:
                    action(environment)
                    assert environment.state == target
                else:
                    with pytest.raises(TransitionRefused):
                        action(environment)
                    assert Environment.objects.get().state == source

    def test_retire_needs_an_empty_environment(self, environment):
        holder, _ = take(environment)
        refused(
            environment,
            lambda: editing.retire(environment),
            "1 jobs still hold resources of local/main",
            "state",
        )
        give_back(holder)
        editing.retire(environment)
        assert cores(environment) == []

    def test_resume_checks_the_rules(self, environment):
        editing.drain(environment)
        environment.resources.get(slug="gpu").resource_devices.all().delete()
        with pytest.raises(ValidationError, match="The total is 2, but 0 devices are chosen"):
            editing.resume(environment)
        assert Environment.objects.get().state == "draining"

    def test_engine(self, host):
        engine = make_engine(host)
        with pytest.raises(ValidationError, match="The engine has no environment"):
            editing.activate_engine(engine)
        environment = create_environment(engine, "a", cpu=1, ram_mib=64, disk_mib=100, prices={"cpu": 1})
        editing.activate_engine(engine)
        assert engine.state == Engine.objects.get().state == "active"
        take(environment)
        with pytest.raises(ValidationError, match="1 jobs still run on local; drain it"):
            editing.disable_engine(engine)
        editing.drain_engine(engine)
        assert engine.state == "draining"

    def test_engine_with_a_broken_environment_is_not_activated(self, environment, engine):
        environment.resources.get(slug="gpu").resource_devices.all().delete()
        with pytest.raises(ValidationError, match="The total is 2, but 0 devices are chosen"):
            editing.activate_engine(engine)
        assert Engine.objects.get().state == "disabled"


class TestWhatJobsHoldTogether:
    """Sums over several environments, which no single total shows."""

    @pytest.fixture
    def other(self, environment, host):
        return create_environment(
            make_engine(host, "second"), "other", cpu=2, ram_mib=8192, disk_mib=50_000, counters={"licence": 3},
            prices={"cpu": 1},
        )  # fmt: skip

    @pytest.mark.parametrize(("kind", "field"), [("ram", "memory_mib"), ("disk", "disk_mib")])
    def test_a_host_is_not_made_smaller_than_what_its_jobs_hold(self, environment, other, host, kind, field):
        most = {"ram": 8192, "disk": 50_000}[kind]
        holder, _ = take(environment, **{kind: most})
        take(other, **{kind: most})
        Host.objects.filter(pk=host.pk).update(**{field: getattr(host, field) - 1})
        with pytest.raises(ValidationError) as error:
            check_host(Host.objects.get(pk=host.pk))
        assert f"hold {2 * most} MiB of {kind}, {2 * most - 1} would be left" in str(
            error.value.message_dict[field]
        )
        give_back(holder)
        check_host(Host.objects.get(pk=host.pk))

    @pytest.fixture
    def shared(self, environment, other):
        Resource.objects.filter(slug="licence").update(sharing="shared_exclusive")
        take(environment, licence=1)
        take(other, licence=2)

    @pytest.mark.usefixtures("shared")
    def test_a_shared_counter_is_not_lowered_below_what_is_in_use_anywhere(self, environment, other):
        set_total(other, 2)  # the other environment says 3 still
        refused(
            environment, lambda: set_total(environment, 2), "3 are in use on the host, 2 would be left",
            "resources.licence.total",
        )  # fmt: skip

    def test_a_counter_is_not_shared_while_more_than_it_has_are_in_use(self, environment, other):
        take(environment, licence=2)
        take(other, licence=2)
        share(other)
        refused(
            environment, lambda: share(environment), "4 are in use on the host", "resources.licence.total"
        )


def set_total(environment, total: int) -> None:
    with editing.edited(environment):
        licence = environment.resources.get(slug="licence")
        licence.total = licence.max = total
        save_clean(licence)


def share(environment) -> None:
    with editing.edited(environment):
        licence = environment.resources.get(slug="licence")
        licence.sharing = "shared_exclusive"
        save_clean(licence)


def test_one_core_is_told_in_the_singular():
    assert core_words.too_few(1, 0, "rack-a", 8).startswith("1 core is asked, 0 of the 8")
