"""How long a job waits at most, as far as the deadlines of what runs tell. Unknown is None, never a guess.

The line is played through: each job starts as soon as all before it have started and what it needs is free, and runs
for its longest. Jobs usually end earlier; one that is submitted later may pass for `MAX_BYPASS_SECONDS`.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count

from environments.amounts import least_amounts
from environments.models import Environment, ResourceDevice, ResourceKind, Sharing, Tier
from environments.use import ResourceUse, free_amounts, job_places
from jobs.holders import HeldAmount, Holder, read_holders
from jobs.line import LONGEST, Waiting, read_lines
from jobs.models import Job
from jobs.overdue import Uses, healthy_devices, most

Key = tuple[str, str]  # slug of a resource (or `jobs`), and whose limit it is: own, host, free, or the tier's
Needs = Mapping[Key, int]


def wait_in_line(
    room: Needs, ends: Iterable[tuple[float, Needs]], line: Sequence[tuple[Needs, float]]
) -> int | None:
    """Whole seconds until the last of the line starts; None when what must end before has no known end.

    `room`: what is free now; `ends`: in how many seconds what becomes free; `line`: needs and longest run of each.
    """
    free: Counter[Key] = Counter(room)
    order = count()
    heap = [(max(0.0, seconds), next(order), amounts) for seconds, amounts in ends]
    heapq.heapify(heap)
    now = 0.0
    for needs, seconds in line:
        while any(free[key] < amount for key, amount in needs.items()):
            if not heap:
                return None
            at, _, amounts = heapq.heappop(heap)
            now = max(now, at)
            free.update(amounts)
        free.subtract(needs)
        heapq.heappush(heap, (now + seconds, next(order), needs))
    return math.ceil(now)


class Estimates:
    """Estimates for any number of environments, from six statements for all of them together."""

    def __init__(self, environments: Sequence[Environment], now: datetime, uses: Uses | None = None) -> None:
        """The environments come with their engines; `uses`: their use, where it was read already."""
        self._now = now
        keys = [environment.pk for environment in environments]
        self._uses: Uses = free_amounts(environments) if uses is None else uses
        self._lines = read_lines(keys, now)
        self._places = job_places(keys)
        self._healthy = healthy_devices(keys)
        self._holders = read_holders({one.engine.host_id for one in environments})
        members = ResourceDevice.objects.filter(environment__in=keys).values_list("resource", "device")
        self._members: dict[int, set[int]] = {}
        for resource, device in members:
            self._members.setdefault(resource, set()).add(device)

    def of_job(self, job: Job) -> int | None:
        """For a queued job (saved or not), which comes with its environment and engine."""
        line = self._lines[job.environment_id]
        ahead = [one for one in line if one.is_before(job.tier, job.pk)]
        return self._of(job.environment, ahead, Waiting(0, job.tier, job.terms["resources"], 0))

    def of_next(self, environment: Environment, tier: str) -> int | None:
        """For the next job of the tier that asks the least."""
        line = self._lines[environment.pk]
        ahead = [one for one in line if one.is_before(tier)]
        least = least_amounts(self._uses[environment.pk].values(), tier)
        return self._of(environment, ahead, Waiting(0, tier, least, 0)) if least else None

    def _of(self, environment: Environment, ahead: list[Waiting], last: Waiting) -> int | None:
        uses = self._uses[environment.pk]
        if len(ahead) > LONGEST or not self._may_fit(last, uses) or self._is_measured(environment):
            return None
        line = [one for one in ahead if self._may_fit(one, uses)]
        room = dict(_room(uses))
        for tier in {one.tier for one in (*line, last)}:
            running, allowed = self._places[environment.pk, tier]
            if allowed is not None:
                room["jobs", tier] = allowed - running
        ends = [
            (end, self._given_back(holder, environment, uses))
            for holder in self._holders
            if holder.host_id == environment.engine.host_id and (end := holder.ends_in(self._now)) is not None
        ]
        return wait_in_line(room, ends, [(_needs(one, uses, room), one.seconds) for one in (*line, last)])

    def _is_measured(self, environment: Environment) -> bool:
        """Whether the turns of a benchmark decide, which knows no line: its own, or that it runs on the host now."""
        host = environment.engine.host_id
        running = (one for one in self._holders if one.benchmark and not one.exited)
        return environment.benchmark or any(one.host_id == host for one in running)

    def _may_fit(self, job: Waiting, uses: Mapping[str, ResourceUse]) -> bool:
        return all(
            slug in uses and amount <= most(uses[slug], job.tier, self._healthy)
            for slug, amount in job.amounts.items()
        )

    def _given_back(self, holder: Holder, environment: Environment, uses: Mapping[str, ResourceUse]) -> Needs:
        """What its end means for the rooms of this environment: its own, and what others of the host give back."""
        back: Counter[Key] = Counter()
        for use in uses.values():
            for amount in holder.amounts:
                if amount.resource_id == use.resource_id:
                    back[use.slug, "own"] += amount.amount
                    back[use.slug, "free"] += amount.amount if holder.tier == Tier.FREE else 0
                if _same_on_host(use, amount):
                    back[use.slug, "host"] += amount.amount
            if use.kind == ResourceKind.DEVICE:
                back[use.slug, "host"] += len(holder.devices & self._members.get(use.resource_id, set()))
            elif use.kind == ResourceKind.CPU:
                back[use.slug, "host"] += back[use.slug, "own"]
        if holder.environment_id == environment.pk and not holder.exited:
            back["jobs", holder.tier] += 1
        return back


def _room(uses: Mapping[str, ResourceUse]) -> Iterator[tuple[Key, int]]:
    for slug, use in uses.items():
        yield (slug, "own"), use.total - use.used
        yield (slug, "free"), (use.free_tier_total or 0) - use.used_free
        if use.host_free is not None:
            yield (slug, "host"), use.host_free


def _needs(job: Waiting, uses: Mapping[str, ResourceUse], room: Needs) -> Needs:
    scopes = ("own", "host", "free") if job.tier == Tier.FREE else ("own", "host")
    needs = {
        (slug, scope): amount
        for slug, amount in job.amounts.items()
        for scope in scopes
        if (slug, scope) in room and amount
    }
    if ("jobs", job.tier) in room:
        needs["jobs", job.tier] = 1
    return needs


def _same_on_host(use: ResourceUse, amount: HeldAmount) -> bool:
    if use.kind in (ResourceKind.RAM, ResourceKind.DISK):
        return amount.kind == use.kind
    shared = use.kind == ResourceKind.COUNTER and use.sharing == Sharing.SHARED_EXCLUSIVE
    return shared and (amount.kind, amount.slug, amount.sharing) == (use.kind, use.slug, use.sharing)
