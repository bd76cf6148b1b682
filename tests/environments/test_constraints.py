"""Requests against constraints, with exact amounts and messages; and that the order of a list changes nothing."""

from collections.abc import Mapping

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from environments.amounts import fill
from environments.bounds import Bound, Limits, rules_of
from environments.constraints import settle
from environments.models import Constraint, FreeResource
from environments.setup import create_environment, save_constraint

LIMITS = {
    limit.slug: limit
    for limit in (
        Limits("cpu", "cpu", 1, 16),
        Limits("ram", "ram", 64, 65_536),
        Limits("disk", "disk", 64, 100_000),
        Limits("gpu", "device", 0, 4),
        Limits("old-gpu", "device", 0, 2),
        Limits("licence", "counter", 0, 3),
    )
}
LEAST = {slug: limit.min for slug, limit in LIMITS.items()}
PER_GPU = Bound("gpu", "ram", min=8192, max=16_384)


def settled(bounds, limits: Mapping[str, Limits] = LIMITS, **asked: int) -> dict[str, int]:
    """What differs from what was asked."""
    start = {slug: max(asked.get(slug, 0), limits[slug].min) for slug in limits}
    found = settle(start, limits, bounds)
    return {slug: amount for slug, amount in found.items() if amount != start[slug]}


def refused(bounds, limits: Mapping[str, Limits] = LIMITS, **asked: int) -> list[str]:
    with pytest.raises(ValidationError) as error:
        settled(bounds, limits, **asked)
    return error.value.message_dict["resources"]


@pytest.mark.parametrize(
    ("bounds", "asked", "raised"),
    [
        ([PER_GPU], {}, {}),
        ([PER_GPU], {"gpu": 1}, {"ram": 8192}),
        ([PER_GPU], {"gpu": 2, "ram": 100}, {"ram": 16_384}),
        ([PER_GPU], {"gpu": 2, "ram": 20_000}, {}),
        ([PER_GPU], {"gpu": 2, "ram": 32_768}, {}),
        ([Bound("gpu", "ram", per_unit=False, min=9000)], {"gpu": 3}, {"ram": 9000}),
        ([Bound("gpu", "ram", per_unit=False, max=9000)], {"gpu": 3, "ram": 9000}, {}),
        ([Bound("gpu", "licence", max=0)], {"gpu": 1}, {}),
        ([Bound("gpu", "licence", max=0)], {"licence": 2}, {}),
        # A target that nobody asked for, with a floor of its own in turn.
        (
            [Bound("gpu", "licence", per_unit=False, min=1), Bound("licence", "disk", min=500)],
            {"gpu": 2},
            {"licence": 1, "disk": 500},
        ),
        (
            [Bound("ram", "disk", min=2048), PER_GPU, Bound("disk", "cpu", per_unit=False, min=3)],
            {"gpu": 2},
            {"ram": 16_384, "disk": 32_768, "cpu": 3},
        ),
        # Per unit of memory and disk is per GiB: parts round up for a floor, down for a ceiling.
        ([Bound("ram", "cpu", min=1)], {"ram": 2049}, {"cpu": 3}),
        ([Bound("ram", "disk", min=2048)], {"ram": 1000}, {"disk": 2000}),
        ([Bound("disk", "cpu", max=1)], {"disk": 2048, "cpu": 2}, {}),
        # Circles that settle: one each of the other, an absolute floor, parts of a GiB that round up once.
        ([Bound("cpu", "gpu", min=1), Bound("gpu", "cpu", min=1)], {"cpu": 3}, {"gpu": 3}),
        (
            [Bound("cpu", "gpu", per_unit=False, min=1), Bound("gpu", "cpu", min=4)],
            {"cpu": 2},
            {"gpu": 1, "cpu": 4},
        ),
        ([Bound("ram", "cpu", min=1), Bound("cpu", "ram", min=1024)], {"ram": 1500}, {"cpu": 2, "ram": 2048}),
        # A whole kind: what is asked of it counts together, the only one asked is raised.
        ([Bound("cpu", "device", True, per_unit=False, min=2)], {"gpu": 1}, {"gpu": 2}),
        ([Bound("cpu", "device", True, per_unit=False, min=2)], {"gpu": 1, "old-gpu": 1}, {}),
        ([Bound("cpu", "device", True, min=1)], {"cpu": 2, "old-gpu": 1}, {"old-gpu": 2}),
        ([Bound("cpu", "ram", True, min=1000)], {"cpu": 2}, {"ram": 2000}),
        # Floors on single resources settle first, and may already be what the kind needs.
        (
            [Bound("cpu", "device", True, per_unit=False, min=2), Bound("licence", "gpu", min=1)],
            {"licence": 2},
            {"gpu": 2},
        ),
        ([Bound("gpu", "device", True, per_unit=False, max=3)], {"gpu": 2, "old-gpu": 1}, {}),
        # What adds up does so for what is asked.
        (
            [Bound(slug, "ram", aggregate=True, min=1000, max=2000) for slug in ("gpu", "old-gpu")],
            {"gpu": 1, "old-gpu": 2, "ram": 6000},
            {},
        ),
        (
            [Bound(slug, "ram", aggregate=True, min=1000) for slug in ("gpu", "old-gpu")],
            {"gpu": 1, "old-gpu": 2},
            {"ram": 3000},
        ),
        (
            [Bound("gpu", "ram", aggregate=True, max=100), Bound("cpu", "ram", aggregate=True, min=1)],
            {"gpu": 1, "ram": 5000},
            {},
        ),
    ],
    ids=str,
)
def test_what_is_raised(bounds, asked, raised):
    assert settled(bounds, **asked) == raised
    assert settled(bounds[::-1], **asked) == raised


@pytest.mark.parametrize(
    ("bounds", "asked", "message"),
    [
        (
            [Bound("gpu", "ram", min=20_000)],
            {"gpu": 4, "ram": 500},
            "ram: asked 500 MiB; with 4 gpu it is at least 80000 MiB, and at most 65536 MiB per job: ask for less gpu.",
        ),
        (
            [Bound("gpu", "licence", per_unit=False, min=4)],
            {"gpu": 4},
            "licence: asked 0; with 4 gpu it is at least 4, and at most 3 per job: ask for no gpu.",
        ),
        (
            [PER_GPU],
            {"gpu": 1, "ram": 16_385},
            "ram: asked 16385 MiB; with 1 gpu it is at most 16384 MiB: ask for at most 16384 MiB of ram, or for more gpu.",
        ),
        (
            [Bound("gpu", "ram", per_unit=False, max=9000)],
            {"gpu": 1, "ram": 9001},
            "ram: asked 9001 MiB; with 1 gpu it is at most 9000 MiB: ask for at most 9000 MiB of ram.",
        ),
        (
            [PER_GPU, Bound("licence", "ram", per_unit=False, max=9000)],
            {"gpu": 2, "licence": 1},
            "ram: asked 64 MiB, raised to 16384 MiB by gpu; with 1 licence it is at most 9000 MiB: ask for less gpu.",
        ),
        (
            [Bound("disk", "cpu", max=1)],
            {"disk": 2047, "cpu": 2},
            "cpu: asked 2; with 2047 MiB of disk it is at most 1: ask for at most 1 of cpu, or for more disk.",
        ),
        (
            [Bound("cpu", "device", True, per_unit=False, min=1)],
            {},
            "kind device: asked 0; with 1 cpu it is at least 1: say how many of gpu and old-gpu.",
        ),
        (
            [Bound("cpu", "device", True, min=1)],
            {"cpu": 5, "gpu": 1, "old-gpu": 1},
            "kind device: asked 2; with 5 cpu it is at least 5: say how many of gpu and old-gpu.",
        ),
        (
            [Bound("cpu", "device", True, min=1)],
            {"cpu": 5, "gpu": 1},
            "kind device: asked 1; with 5 cpu it is at least 5: say how many of gpu and old-gpu.",
        ),
        (
            [Bound("cpu", "device", True, min=1)],
            {"cpu": 7, "gpu": 4},
            "kind device: asked 4; with 7 cpu it is at least 7, and at most 6 per job: ask for less cpu.",
        ),
        (
            [Bound("cpu", "device", True, per_unit=False, max=2)],
            {"cpu": 7, "gpu": 2, "old-gpu": 1},
            "kind device: asked 3; with 7 cpu it is at most 2: ask for at most 2 of kind device.",
        ),
        (
            [Bound(slug, "cpu", aggregate=True, max=4) for slug in ("old-gpu", "gpu")],
            {"cpu": 13, "gpu": 1, "old-gpu": 2},
            "cpu: asked 13; with 1 gpu and 2 old-gpu it is at most 12: ask for at most 12 of cpu, or for more gpu and old-gpu.",
        ),
        (
            [Bound("cpu", "gpu", min=2), Bound("gpu", "cpu", min=1)],
            {"cpu": 1},
            "gpu: asked 0; with 4 cpu it is at least 8, and at most 4 per job: ask for less cpu.",
        ),
    ],
    ids=str,
)
def test_what_is_refused(bounds, asked, message):
    assert refused(bounds, **asked) == [message]
    assert refused(bounds[::-1], **asked) == [message]


def test_every_broken_ceiling_is_told():
    bounds = [Bound("gpu", "cpu", max=1), Bound("gpu", "ram", max=100)]
    assert [text.split(":")[0] for text in refused(bounds, gpu=1, cpu=2, ram=200)] == ["cpu", "ram"]


def test_sums_that_feed_themselves_end():
    limits = {slug: Limits(slug, "counter", 0, 2**40) for slug in "abt"}
    bounds = [Bound(slug, "t", aggregate=True, min=1) for slug in "ab"] + [Bound("t", "a", min=1)]
    assert settled(bounds, limits, a=3) == {"t": 3}
    expected = "The constraints of a and b and t raise each other without end: ask for none of these."
    assert refused(bounds, limits, a=3, b=1) == [expected]


SLUGS = sorted(LIMITS)
AMOUNTS = st.integers(0, 5) | st.integers(0, 5).map(lambda number: number * 1024)


def bound(resource: str, target: str, per_unit: bool, aggregate: bool, low: int, room: int | None) -> Bound:
    whole, most = target == "device", None if room is None else low + room
    return Bound(resource, target, whole, per_unit, aggregate and not whole, low, most)


BOUNDS = st.builds(
    bound,
    st.sampled_from(SLUGS),
    st.sampled_from([*SLUGS, "device"]),
    st.booleans(),
    st.booleans(),
    AMOUNTS,
    st.none() | AMOUNTS,
).filter(lambda one: one.resource != one.target)
REQUESTS = st.fixed_dictionaries(
    {slug: st.integers(limit.min, min(limit.max, limit.min + 5)) for slug, limit in LIMITS.items()}
)


def outcome(asked, bounds) -> dict[str, int] | list[str]:
    try:
        return settle(asked, LIMITS, bounds)
    except ValidationError as error:
        return error.message_dict["resources"]


@given(REQUESTS, st.lists(BOUNDS, max_size=6), st.randoms(use_true_random=False))
def test_the_order_changes_nothing_and_all_is_kept(asked, bounds, random):
    found = outcome(asked, bounds)
    shuffled = random.sample(bounds, len(bounds))
    assert outcome(asked, shuffled) == found
    if isinstance(found, list):
        return
    assert all(asked[slug] <= found[slug] <= LIMITS[slug].max for slug in LIMITS)
    assert settle(found, LIMITS, bounds) == found
    for rule in rules_of(bounds):
        amount = sum(found[slug] for slug in rule.members(LIMITS))
        most = rule.ceiling(found, LIMITS)
        assert rule.floor(found, LIMITS) <= amount
        assert most is None or amount <= most


class TestFill:
    """With rows: paid and free."""

    @pytest.fixture
    def environment(self, engine):
        return create_environment(
            engine,
            "main",
            cpu="0-3",
            ram_mib=8192,
            disk_mib=50_000,
            devices={"gpu": ["GPU-rack-a-0", "GPU-rack-a-1"]},
            counters={"licence": 3},
            limits={"ram": (0, 6000)},
            free={"cpu": 2, "ram": 2048, "disk": 10_000, "gpu": 2},
            prices={"cpu": 1},
            constraints=[
                {"resource": "gpu", "target": "ram", "min": 2000, "max": 3000},
                {"resource": "cpu", "target_kind": "device", "per_unit": False, "max": 1},
            ],
        )

    def test_paid_and_free_have_limits_of_their_own(self, environment):
        assert fill(environment, "paid", {"gpu": 1}) == {
            "cpu": 1,
            "ram": 2000,
            "disk": 64,
            "gpu": 1,
            "licence": 0,
        }
        assert fill(environment, "free", {"gpu": 1}) == {"cpu": 1, "ram": 2000, "disk": 64, "gpu": 1}
        for tier, asked, message in [
            ("paid", {"gpu": 2}, "kind device: asked 2; with 1 cpu it is at most 1"),
            ("paid", {"gpu": 1, "ram": 3001}, "ram: asked 3001 MiB; with 1 gpu it is at most 3000 MiB"),
            ("free", {"gpu": 2}, "at least 4000 MiB, and at most 2048 MiB per job in the free tier"),
        ]:
            with pytest.raises(ValidationError, match=message):
                fill(environment, tier, asked)

    def test_what_the_free_tier_does_not_list_is_not_raised(self, environment):
        save_constraint(
            Constraint(environment=environment),
            {row.slug: row for row in environment.resources.all()},
            resource="gpu",
            target="licence",
            min=1,
        )
        assert fill(environment, "paid", {"gpu": 1})["licence"] == 1
        with pytest.raises(
            ValidationError, match="licence: asked 0; with 1 gpu it is at least 1, and at most 0 per"
        ):
            fill(environment, "free", {"gpu": 1})
        FreeResource.objects.filter(resource__slug="gpu").delete()
        assert fill(environment, "free", {}) == {"cpu": 1, "ram": 64, "disk": 64}

    def test_other_faults_come_first(self, environment):
        with pytest.raises(ValidationError) as error:
            fill(environment, "paid", {"gpu": 3, "tpu": 1})
        assert len(error.value.message_dict["resources"]) == 2
