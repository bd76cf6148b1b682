"""The rules that no single row can check, and the warnings that refuse nothing.

`check_environment` runs after the rows of an edit were saved and before its transaction commits, under the host's
lock: what it refuses is rolled back whole. Keys of its errors are paths: `cores`, `resources.<slug>.total`,
`free_tier.resources.<slug>.total`, `constraints.<slug>.<slug or kind>.per_unit.min`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from django.core.exceptions import ValidationError
from django.db.models import Max

from environments.alone import claimable_cores
from environments.amounts import allowance
from environments.constraint_rules import hopeless
from environments.cpuset import format_cores
from environments.device_rules import wrong_devices
from environments.models import (
    Core,
    Environment,
    EnvironmentState,
    FreeResource,
    FreeTier,
    Host,
    Price,
    PriceList,
    ReservedCore,
    ReservedDevice,
    Resource,
    ResourceDevice,
    ResourceKind,
    Sharing,
    Tier,
)
from environments.models.offer import NO_PRICE
from environments.use import ResourceUse, read_use

Found = Iterator[tuple[str, str]]
NEEDED = (ResourceKind.CPU, ResourceKind.RAM, ResourceKind.DISK)
Totals = Mapping[int, int]  # in MiB, by key of the resource
NONE: Totals = {}
WAY_OUT = "drain the environment and wait for its jobs, then try again"


def check_environment(environment: Environment, kept: Totals = NONE) -> None:
    """Every rule across the rows of one environment, and that nothing in use was taken away from running jobs.

    `kept` are the totals above the host's size that may stay (`totals_above`, read before the edit). Reads about ten
    statements. Raises ValidationError {path: [messages]}; writes nothing.
    """
    uses = read_use([environment.pk])
    errors: dict[str, list[str]] = defaultdict(list)
    for path, message in _all(environment, uses, kept):
        errors[path].append(message)
    if errors:
        raise ValidationError(dict(errors))


def totals_above(environment_ids: Collection[int]) -> dict[int, int]:
    """Totals of memory and disk that are more than the host has, by key of the resource (ADR 0007): an import may write
    them, and an edit that leaves them alone keeps them."""
    return {use.resource_id: use.total for use in read_use(environment_ids) if use.total > use.offered}


def check_host(host: Host, kept: Totals = NONE) -> None:
    """Physical size less the reserve still covers what jobs hold and what each environment offers, but for
    totals that are `kept`.

    Raises ValidationError with fields of the host, naming both numbers.
    """
    errors = defaultdict(list)
    held: dict[str, str] = {}
    for use in read_use(host_environments(host)):
        if use.host_size is None:
            continue
        field = "memory_mib" if use.kind == ResourceKind.RAM else "disk_mib"
        if _too_large(use, kept):
            errors[field].append(
                f"{use.environment_slug} offers {use.total} MiB of {use.kind}, {use.host_size} would be left;"
                " lower that first."
            )
        if (use.host_used or 0) > use.host_size:  # of all environments together
            held[field] = (
                f"Running jobs hold {use.host_used} MiB of {use.kind}, {use.host_size} would be left; {WAY_OUT}."
            )
    for field, message in held.items():
        errors[field].append(message)
    if errors:
        raise ValidationError(errors)


def _too_large(use: ResourceUse, kept: Totals) -> bool:
    return use.total > use.offered and kept.get(use.resource_id) != use.total


def host_environments(host: Host) -> list[int]:
    """Keys of the environments that share the host, of all its engines: without the retired, and without those that
    measure it, which run alone and are kept in step with it."""
    rows = Environment.objects.filter(engine__host=host, benchmark=False)
    rows = rows.exclude(state=EnvironmentState.RETIRED)
    return list(rows.values_list("pk", flat=True))


def size_warnings(environment_ids: Collection[int]) -> list[str]:
    """Totals of these environments that their host does not have."""
    return [
        f"{use.environment_slug}: the total of {use.total} MiB of {use.slug} is more than the host has without its"
        f" reserve: {use.offered} MiB are offered."
        for use in read_use(environment_ids)
        if use.total > use.offered
    ]


def overcommitted(host: Host) -> list[str]:
    """Memory and disk of which all environments of the host together offer more than it has, with both numbers."""
    totals: dict[str, int] = defaultdict(int)
    for use in read_use(host_environments(host)):
        totals[use.kind] += use.offered
    return [
        f"{kind}: all environments on {host} together offer {totals[kind]} MiB, the host has {size} MiB; jobs wait when"
        " it is used up."
        for kind, size in (("ram", host.usable_memory_mib), ("disk", host.usable_disk_mib))
        if totals[kind] > size
    ]


def warnings(environment: Environment) -> list[str]:
    """What is allowed but should be known: overcommitted memory and disk, and what of the free tier no job can have."""
    host = environment.engine.host
    found = overcommitted(host) if host is not None else []
    tier = FreeTier.objects.filter(environment=environment).first()
    if tier is not None:
        kinds = set(tier.resources.filter(max__gt=0).values_list("resource__kind", flat=True))
        missing = [kind for kind in NEEDED if kind not in kinds]
        if missing:
            found.append(f"The free tier lists no {', '.join(missing)}: free jobs cannot run until it does.")
        may_have = allowance(environment, Tier.FREE)
        for bound, _, message in hopeless(may_have.bounds, may_have.limits):
            found.append(f"No free job can have {bound.resource}: {message}")
    return found


def _all(environment: Environment, uses: list[ResourceUse], kept: Totals) -> Found:
    yield from _in_use(environment, uses)
    if environment.state == EnvironmentState.RETIRED:
        return
    yield from _offered(environment, uses)
    yield from _free(environment)
    yield from _constraints(environment)
    if environment.engine.host_id is not None:
        yield from _cores(environment, uses)
        yield from _sizes(uses, kept)
        yield from wrong_devices(environment, uses)


def _offered(environment: Environment, uses: list[ResourceUse]) -> Found:
    """Something to run on, and a way to pay or not to."""
    for kind in NEEDED:
        if not any(use.kind == kind and use.total > 0 for use in uses):
            yield "resources", f"There is no {kind}; add a resource of kind {kind} with its total."
    prices = Price.objects.filter(price_list__environment=environment)
    if not FreeTier.objects.filter(environment=environment).exists() and not prices.exists():
        yield (
            "price_lists",
            "There is neither a price nor a free tier; add a price list with a price, or a free tier.",
        )
    for row in PriceList.objects.filter(environment=environment, prices=None):
        yield f"price_lists.{row.currency}.prices", NO_PRICE


def _free(environment: Environment) -> Found:
    """The free parts still fit their resources after these were edited."""
    for part in FreeResource.objects.filter(free_tier__environment=environment).select_related(
        "resource", "free_tier"
    ):
        try:
            part.clean()
        except ValidationError as error:
            for field, messages in error.message_dict.items():
                yield f"free_tier.resources.{part.resource.slug}.{field}", " ".join(messages)


def _constraints(environment: Environment) -> Found:
    may_have = allowance(environment, Tier.PAID)
    for bound, field, message in hopeless(may_have.bounds, may_have.limits):
        yield f"{bound.path}.{field}", message


def _cores(environment: Environment, uses: list[ResourceUse]) -> Found:
    strangers = Core.objects.filter(environment=environment).exclude(host=environment.engine.host)
    for core in strangers.select_related("host"):
        yield "cores", f"{core} is not on the environment's host {environment.engine.host}; take it out."
    count = claimable_cores(environment).count()
    for use in uses:
        if use.kind == ResourceKind.CPU and use.total != count:
            yield (
                f"resources.{use.slug}.total",
                f"The total is {use.total}, but the environment has {count} cores; name as many cores as the total.",
            )


def _sizes(uses: list[ResourceUse], kept: Totals) -> Found:
    for use in uses:
        if _too_large(use, kept):
            yield (
                f"resources.{use.slug}.total",
                f"{use.total} MiB is more than the host's {use.host_size} MiB (its size less the system's reserve);"
                " lower it.",
            )


def _in_use(environment: Environment, uses: list[ResourceUse]) -> Found:
    """Running jobs keep what they hold: amounts, the free tier's share, cores and devices."""
    for use in uses:
        if use.used > use.total:
            yield (
                f"resources.{use.slug}.total",
                f"{use.used} are in use, {use.total} would be left; {WAY_OUT}.",
            )
        if use.used_free > (use.free_tier_total or 0):
            yield (
                f"free_tier.resources.{use.slug}.total",
                f"{use.used_free} are in use by free jobs, {use.free_tier_total or 0} would be left; {WAY_OUT}.",
            )
    yield from _shared_in_use(uses)
    held = ReservedCore.objects.filter(reservation__environment=environment, released_at=None)
    lost = held.exclude(core__in=claimable_cores(environment)).values_list("core__index", flat=True)
    if lost:
        yield (
            "cores",
            f"Cores {format_cores(lost)} are held by running jobs and cannot be taken away; {WAY_OUT}.",
        )
    kept = ResourceDevice.objects.filter(environment=environment).values("device")
    things = ReservedDevice.objects.filter(reservation__environment=environment, released_at=None)
    for thing in things.exclude(device__in=kept).select_related("device", "resource"):
        yield (
            f"resources.{thing.resource.slug}.devices",
            f"{thing.device} is held by a running job and cannot be taken away; {WAY_OUT}.",
        )


def _shared_in_use(uses: list[ResourceUse]) -> Found:
    """A shared counter is one thing under several environments: the largest total covers what jobs hold of it anywhere."""
    for use in uses:
        if use.kind != ResourceKind.COUNTER or use.sharing != Sharing.SHARED_EXCLUSIVE or use.host_id is None:
            continue
        same = Resource.objects.filter(slug=use.slug, kind=use.kind, sharing=use.sharing)
        most = same.filter(environment__engine__host=use.host_id).aggregate(most=Max("total"))["most"]
        if (use.host_used or 0) > most:
            yield (
                f"resources.{use.slug}.total",
                f"{use.host_used} are in use on the host, {most} would be left; {WAY_OUT}.",
            )
