"""Which cores an import gives to whom."""

from environments.models import Environment
from tests.environments.conftest import give_back, make_engine, take
from tests.environments.importing.conftest import amounts, cores, nested, offer, refused, resource, run, told


class TestCores:
    def test_named_ones_are_placed_before_numbers_and_these_before_the_rest(self, engine):
        rest, number = offer("rest"), offer("number")
        rest["resources"] = [resource("disk", 1)]
        both = nested(rest, number, offer("named", cpuCores=[0, 3]))
        run(both)
        assert (cores("rest"), cores("number"), cores("named")) == ([4, 5, 6, 7], [1, 2], [0, 3])
        assert not run(both).changes_anything

    def test_cores_move_between_environments_of_one_file(self, engine):
        run(nested(offer("a", cpuCores=[0, 1]), offer("b", cpuCores=[2, 3])))
        run(nested(offer("a", cpuCores=[2, 3]), offer("b", cpuCores=[0, 1])))
        assert (cores("a"), cores("b")) == ([2, 3], [0, 1])

    def test_whoever_grows_takes_what_is_nobodys(self, engine):
        run(nested(offer("a"), offer("b")))
        more = offer("a")
        more["resources"][0] = resource("cpu", 4)
        run(nested(more, offer("b")))
        assert (cores("a"), cores("b")) == ([0, 1, 4, 5], [2, 3])

    def test_whoever_shrinks_keeps_what_its_jobs_hold(self, engine):
        big = offer()
        big["resources"][0] = resource("cpu", 4)
        run(nested(big))
        made = Environment.objects.get()
        first, _ = take(made, cpu=2)
        _second, claim = take(made, cpu=2)
        give_back(first)
        run(nested(offer()))
        assert cores("a") == list(claim.cores) == [2, 3]

    def test_more_than_there_are(self, engine):
        first, second = offer("a"), offer("b")
        first["resources"][0] = second["resources"][0] = resource("cpu", 6)
        words = "6 cores are asked, 2 of the 8 of rack-a are free"
        refused(nested(first, second), "[0].environments[1].resources[0].total", words)

    def test_none_left(self, engine, host):
        rest = offer("rest")
        rest["resources"] = [resource("disk", 1)]
        run(nested(rest))
        refused(
            nested(rest, {**rest, "id": "more"}), "[0].environments[1].resources", "No core of rack-a is left"
        )

    def test_of_a_stranger_and_not_there(self, engine, host):
        run(nested(offer("a", cpuCores=[0, 1])), engine="local")
        make_engine(host, "second")
        words = "Core 1 belongs to local/a"
        refused(nested(offer("b", cpuCores=[1, 2])), "[0].environments[0].cpuCores", words, engine="second")
        refused(
            nested(offer("b", cpuCores=[7, 8])),
            "[0].environments[0].cpuCores",
            "has no core 8",
            engine="second",
        )

    def test_fewer_named_than_the_total_says(self, engine):
        few = offer(cpuCores="4,6")
        few["resources"][0] = resource("cpu", 4, max=4, min=1)
        plan = run(nested(few))
        assert amounts(Environment.objects.get())["cpu"] == (2, 1, 2)
        assert any("4 cores, but 2 are named" in note for note in told(plan))
