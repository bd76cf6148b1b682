"""What clients ask of the small site: mostly what it offers, now and then too much."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from jobs.models import Job
from tests.factories import submit

# Environment, tier, the most cores, MiB of memory and of disk that it gives, and what else there is of it.
OFFERS = [
    ("a/main", "paid", (3, 8192, 40_000), ("gpu", "licence")),
    ("a/main", "free", (2, 2048, 8000), ("licence",)),
    ("a/large", "paid", (2, 12_000, 80_000), ("gpu", "licence")),
    ("b/open", "free", (2, 10_000, 70_000), ("h200",)),
    ("c/main", "paid", (2, 4096, 20_000), ("gpu",)),
    ("c/main", "free", (1, 1024, 4000), ()),
]
SIZES = {"cpu": [0, 1, 1, 1, 2], "ram": [0, 500, 1000, 2000, 6000], "disk": [0, 500, 4000, 20_000, 45_000]}


@dataclass(frozen=True)
class Ask:
    """One submission."""

    environment: str
    tier: str
    resources: dict[str, int]
    more: dict[str, Any] = field(default_factory=dict)

    def submit(self, user: Any) -> Job:
        """Admit it. Raises what admission raises."""
        return submit(
            user, environment=self.environment, tier=self.tier, resources=self.resources, **self.more
        )


@st.composite
def _asks(draw: st.DrawFn) -> Ask:
    environment, tier, most, extras = draw(st.sampled_from(OFFERS))
    resources = {
        slug: min(draw(st.sampled_from(sizes)), cap)
        for (slug, sizes), cap in zip(SIZES.items(), most, strict=True)
    }
    for slug in draw(st.sets(st.sampled_from(extras), max_size=2)) if extras else ():
        resources[slug] = draw(st.sampled_from([1, 1, 1, 2]))
    if draw(st.integers(0, 9)) == 9:
        resources["cpu"] += 3
    more = draw(st.sampled_from([{}, {"max_duration": 30}, {"max_duration": 600, "max_queue_wait": 60}]))
    return Ask(environment, tier, resources, more)


asks = _asks()
