"""What an operator may do to an environment or its host at any moment, by the functions that the admin calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from hypothesis import strategies as st

from compute_site.core.models import save_clean
from environments import editing, reservations
from environments.detection import record_cores
from environments.models import Environment, FreeTier, ResourceDevice
from environments.rules import check_host, host_environments, totals_above

SIZES = [0, 1, 2, 3, 64, 1000, 2000, 8000, 12_000, 40_000, 100_000]


@dataclass(frozen=True)
class Edit:
    """One edit with its values, so that a failing history shows them."""

    what: Callable[..., None]
    values: tuple[Any, ...]

    def __call__(self, environment: Environment) -> None:
        self.what(environment, *self.values)

    def __repr__(self) -> str:
        return f"{self.what.__name__}{self.values}"


def set_total(environment: Environment, slug: str, total: int) -> None:
    resource = environment.resources.filter(slug=slug).first()
    if resource is None:
        return
    with editing.edited(environment):
        resource.total = resource.max = total
        save_clean(resource)


def share_counter(environment: Environment, sharing: str) -> None:
    counter = environment.resources.filter(kind="counter").first()
    if counter is None:
        return
    with editing.edited(environment):
        counter.sharing = sharing
        save_clean(counter)


def set_free_total(environment: Environment, slug: str, total: int) -> None:
    """0 takes the resource out of the free tier."""
    tier = FreeTier.objects.filter(environment=environment).first()
    part = tier and tier.resources.select_related("resource").filter(resource__slug=slug).first()
    if not part:
        return
    with editing.edited(environment):
        if total:
            part.total = part.max = total
            save_clean(part)
        else:
            part.delete()


def close_free_tier(environment: Environment) -> None:
    with editing.edited(environment):
        FreeTier.objects.filter(environment=environment).delete()


def set_max_jobs(environment: Environment, most: int) -> None:
    with editing.edited(environment):
        environment.max_jobs = most
        save_clean(environment)


def take_device(environment: Environment, number: int) -> None:
    """One device goes out of its resource, and the total with it."""
    rows = list(ResourceDevice.objects.filter(environment=environment).select_related("resource"))
    if not rows:
        return
    row = rows[number % len(rows)]
    with editing.edited(environment):
        resource = row.resource
        row.delete()
        resource.total = resource.max = resource.devices.count()
        save_clean(resource)


def give_device(environment: Environment, number: int) -> None:
    resource = environment.resources.filter(kind="device").first()
    devices = list(environment.host.devices.all())
    if resource is None:
        return
    with editing.edited(environment):
        save_clean(
            ResourceDevice(resource=resource, environment=environment, device=devices[number % len(devices)])
        )
        resource.total = resource.max = resource.devices.count()
        save_clean(resource)


def place_cores(environment: Environment, cores: list[int]) -> None:
    """As the environment's page in the admin, with cores named."""
    with editing.edited(environment):
        editing.place_cores(environment, cores)


def resize_host(environment: Environment, memory: int, disk: int, cores: int) -> None:
    """As the host's page in the admin."""
    with transaction.atomic():
        host = reservations.lock_host(environment.host.pk)
        kept = totals_above(host_environments(host))
        host.memory_mib, host.disk_mib, host.cpu_count = memory, disk, cores
        save_clean(host)
        record_cores(host, cores)
        check_host(host, kept)


def state_of_engine(environment: Environment, name: str) -> None:
    getattr(editing, name)(environment.engine)


def change_state(environment: Environment, name: str) -> None:
    getattr(editing, name)(environment)


def _edit(what: Callable[..., None], *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Edit]:
    return st.tuples(*values).map(lambda chosen: Edit(what, chosen))


slugs = st.sampled_from(["ram", "disk", "gpu", "licence"])
edits = st.one_of(
    _edit(set_total, slugs, st.sampled_from(SIZES)),
    _edit(set_free_total, st.sampled_from(["cpu", "ram", "disk", "h200"]), st.sampled_from(SIZES)),
    _edit(set_max_jobs, st.integers(0, 4)),
    _edit(place_cores, st.sets(st.integers(0, 7), min_size=1, max_size=4).map(sorted)),
    _edit(editing.set_core_total, st.integers(1, 4)),
    _edit(take_device, st.integers(0, 3)),
    _edit(give_device, st.integers(0, 3)),
    _edit(share_counter, st.sampled_from(["exclusive", "shared_exclusive"])),
    _edit(resize_host, st.sampled_from([13_100, 15_000, 17_000]), st.sampled_from([81_100, 90_000, 101_000]),
          st.integers(7, 9)),
    _edit(state_of_engine, st.sampled_from(["drain_engine", "disable_engine", "activate_engine"])),
    _edit(change_state, st.sampled_from(["drain", "resume", "resume", "retire"])),
    _edit(close_free_tier),
)  # fmt: skip
