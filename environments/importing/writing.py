"""Writes one environment as a file wants it. Only rows that differ are touched; needs the host's lock."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from uuid import uuid5

from django.core.exceptions import ValidationError

from compute_site.core.models import save_changed, save_clean
from environments.device_init import write_init
from environments.importing.amounts import Decided
from environments.importing.constraints import drop_constraints, write_constraints
from environments.importing.wanted import Rule, WantedDevice, WantedEnvironment, WantedPrices
from environments.models import (
    AccessRule,
    Device,
    Engine,
    Environment,
    EnvironmentState,
    FreeResource,
    FreeTier,
    Price,
    PriceList,
    Resource,
)
from environments.models.resource import PHYSICAL
from environments.resources import drop_resource, set_devices, write_free_part, write_resource
from environments.setup import errors_at


def write_environment(
    engine: Engine, wanted: WantedEnvironment, decided: Mapping[str, Decided]
) -> Environment:
    """All rows but the ownership of cores, which the cpu total runs ahead of; the rules across rows are not checked.

    Raises ValidationError with our paths.
    """
    environment = (
        Environment.objects.filter(engine=engine, slug=wanted.slug).select_related("engine__host").first()
    )
    if (
        environment is not None
        and environment.state == EnvironmentState.RETIRED
        and not environment.benchmark
    ):
        raise ValidationError({"slug": f"{environment} is retired for good; give the new one another id."})
    if environment is not None and environment.benchmark:
        text = f"{environment} measures the host and is kept by enableBenchmark; give this one another id."
        raise ValidationError({"slug": text})
    environment = save_changed(environment or Environment(engine=engine, slug=wanted.slug), wanted.fields)
    drop_constraints(environment, wanted)
    resources = _write_resources(environment, decided)
    write_constraints(environment, resources, wanted)
    _write_free_tier(environment, resources, wanted, decided)
    _write_prices(environment, resources, wanted.price_lists)
    _write_access(environment, wanted.access)
    return environment


def write_device(engine: Engine, wanted: WantedDevice) -> Device:
    """The device of that UUID, made when it is new, with the init that the file gives it.

    Raises ValidationError when it is an index, or a job holds it and its init would change.
    """
    uuid = _by_file(engine, wanted.uuid) if wanted.uuid.startswith("/dev/") else wanted.uuid
    device = Device.objects.filter(uuid=uuid).first() or _new_device(engine, wanted, uuid)
    if wanted.init is not None:
        with errors_at("init"):
            write_init(device, wanted.init)
    return device


def _by_file(engine: Engine, path: str) -> str:
    """Whose id is a device file: the same on its host whenever it is imported, and telling nobody which file it is."""
    assert engine.host is not None
    return str(uuid5(engine.host.public_id, path))


def _new_device(engine: Engine, wanted: WantedDevice, uuid: str) -> Device:
    if uuid.isdecimal() and Device.objects.filter(host=engine.host).exclude(seen_at=None).exists():
        raise ValidationError(
            {"devices": f"{uuid} is an index, which changes; write the UUID (nvidia-smi -L lists them)."}
        )
    device = Device(
        host=engine.host,
        uuid=uuid,
        platform=wanted.platform,
        model=wanted.model,
        memory_mib=wanted.memory_mib,
        driver_version=wanted.driver_version,
    )
    try:
        return save_clean(device)
    except ValidationError as error:  # the file tells the platform beside its ids
        told = error.message_dict
        found = {"platform": told.pop("platform", [])}
        found["devices"] = [text for texts in told.values() for text in texts]
        raise ValidationError({name: texts for name, texts in found.items() if texts}) from error


def _write_resources(environment: Environment, decided: Mapping[str, Decided]) -> dict[str, Resource]:
    there = {row.slug: row for row in Resource.objects.filter(environment=environment)}
    by_kind = {row.kind: row for row in there.values() if row.kind in PHYSICAL}
    # cpu, ram and disk may have another name in the file; there is one of each.
    chosen = {slug: by_kind.get(one.wanted.kind, there.get(slug)) for slug, one in decided.items()}
    kept = {row.pk for row in chosen.values() if row is not None}
    for row in there.values():
        if row.pk not in kept:
            with errors_at(f"resources.{row.slug}"):
                drop_resource(row)
    found = {}
    for slug, one in decided.items():
        with errors_at(f"resources.{slug}"):
            row = chosen[slug] or Resource(environment=environment)
            kind, sharing = one.wanted.kind, one.wanted.sharing
            found[slug] = write_resource(row, slug=slug, kind=kind, sharing=sharing, **asdict(one.amounts))
            _write_devices(found[slug], one.wanted.devices)
    return found


def _write_devices(resource: Resource, devices: Sequence[WantedDevice]) -> None:
    chosen = [write_device(resource.environment.engine, device) for device in devices]
    with errors_at("devices"):
        set_devices(resource, chosen)


def _write_free_tier(
    environment: Environment,
    resources: Mapping[str, Resource],
    wanted: WantedEnvironment,
    decided: Mapping[str, Decided],
) -> None:
    tier = FreeTier.objects.filter(environment=environment).first()
    if wanted.free_tier is None:
        if tier is not None:
            tier.delete()
        return
    with errors_at("free_tier"):
        tier = save_changed(tier or FreeTier(environment=environment), wanted.free_tier.fields)
        parts = {slug: one.free for slug, one in decided.items() if one.free is not None}
        there = FreeResource.objects.filter(free_tier=tier)
        there.exclude(resource__slug__in=parts).delete()
        for slug, amounts in parts.items():
            with errors_at(f"resources.{slug}"):
                row = there.filter(resource=resources[slug]).first()
                row = row or FreeResource(free_tier=tier, resource=resources[slug])
                row.resource = resources[slug]
                write_free_part(row, **asdict(amounts))


def _write_prices(
    environment: Environment, resources: Mapping[str, Resource], wanted: Sequence[WantedPrices]
) -> None:
    lists = PriceList.objects.filter(environment=environment)
    lists.exclude(currency__in=[one.currency for one in wanted]).delete()
    for one in wanted:
        with errors_at(f"fees.{one.currency}"):
            row = lists.filter(currency=one.currency).first() or save_clean(
                PriceList(environment=environment, currency=one.currency)
            )
            _write_list(row, resources, one.prices)


def _write_list(row: PriceList, resources: Mapping[str, Resource], prices: Mapping[str, Decimal]) -> None:
    there = Price.objects.filter(price_list=row)
    there.exclude(resource__slug__in=prices).delete()
    for slug, price in prices.items():
        known = there.filter(resource=resources[slug]).first()
        with errors_at(f"prices.{slug}"):
            save_changed(known or Price(price_list=row, resource=resources[slug]), {"per_minute": price})


def _write_access(environment: Environment, wanted: Mapping[str, Sequence[Rule]]) -> None:
    rules = {(tier, kind, value) for tier, listed in wanted.items() for kind, value in listed}
    for row in AccessRule.objects.filter(environment=environment):
        if (row.tier, row.kind, row.value) not in rules:
            row.delete()
        rules.discard((row.tier, row.kind, row.value))
    for tier, kind, value in sorted(rules):
        with errors_at("access"):
            save_clean(AccessRule(environment=environment, tier=tier, kind=kind, value=value))
