"""A whole environment in one transaction, through the same rules as every other door."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import transaction

from compute_site.core.models import save_clean
from environments.editing import choose_cores, place_cores
from environments.history import SITE, Author, record
from environments.models import (
    Constraint,
    Device,
    Engine,
    Environment,
    FreeResource,
    FreeTier,
    Host,
    Price,
    PriceList,
    Resource,
    ResourceKind,
    constraint_path,
)
from environments.reservations import lock_host
from environments.resources import add_device, write_free_part, write_resource
from environments.rules import check_environment

Cores = int | Sequence[int] | str | None


def create_environment(
    engine: Engine,
    slug: str,
    *,
    cpu: Cores = None,
    ram_mib: int | None = None,
    disk_mib: int | None,
    devices: Mapping[str, Sequence[str]] | None = None,
    counters: Mapping[str, int] | None = None,
    limits: Mapping[str, tuple[int, int]] | None = None,
    free: Mapping[str, int] | None = None,
    free_fields: Mapping[str, Any] | None = None,
    prices: Mapping[str, Decimal | int] | None = None,
    currency: str = "credit",
    constraints: Sequence[Mapping[str, Any]] = (),
    author: Author = SITE,
    **fields: Any,
) -> Environment:
    """Make an environment with its resources, prices and free tier; all of it or nothing.

    `cpu` is a number of cores (the lowest free), the cores themselves (indexes or "0-3,8"), or None for all that no
    other environment has. `ram_mib`, `disk_mib` None = what the host has less its reserve. On a fleet engine all three
    are numbers, the most that one job may get. `devices` maps a resource slug to device UUIDs, `counters` to totals,
    `limits` to (min, max) per job, `free` to the free tier's total (an empty mapping: a free tier that lists nothing;
    None: no free tier), `prices` to the price of one unit per minute. `constraints` are those of `save_constraint`,
    by slug: {"resource": "gpu", "target": "ram", "min": 8192, "max": 65536}; `fields` those of the environment.
    Raises ValidationError with paths (`cores`, `resources.<slug>.total`, ...).
    """
    with transaction.atomic():
        totals = _totals(_locked_host(engine, cpu, ram_mib, disk_mib), cpu, ram_mib, disk_mib)
        totals |= _named_totals(devices or {}, counters or {})
        environment = save_clean(Environment(engine=engine, slug=slug, **fields))
        resources = {name: _add_resource(environment, name, *total) for name, total in totals.items()}
        _place_cores(environment, cpu)
        _add_devices(environment, resources, devices or {})
        _limit(resources, limits or {})
        _add_free_tier(environment, resources, free, free_fields or {})
        _add_prices(environment, resources, prices or {}, currency)
        for constraint in constraints:
            save_constraint(Constraint(environment=environment), resources, **constraint)
        check_environment(environment)
        record(environment, author)
    return environment


def save_constraint(
    row: Constraint,
    resources: Mapping[str, Resource],
    *,
    resource: str,
    target: str = "",
    target_kind: str = "",
    per_unit: bool = True,
    aggregate: bool = False,
    min: int = 0,
    max: int | None = None,
) -> Constraint:
    """Write a constraint of `row.environment`, whose `resources` are given by slug; MiB where the target has that unit.

    Raises ValidationError with paths below `constraint_path`. That some request can keep it is for `check_environment`.
    """
    with errors_at(constraint_path(resource, target or target_kind, per_unit)):
        with errors_at("resource"):
            row.resource = _named(resources, resource)
        with errors_at("target"):
            row.target = _named(resources, target) if target else None
        row.target_kind, row.per_unit, row.aggregate = target_kind, per_unit, aggregate
        row.min, row.max = min, max
        return save_clean(row)


@contextmanager
def errors_at(path: str) -> Iterator[None]:
    """Puts `path` before the fields of a ValidationError raised within."""
    try:
        yield
    except ValidationError as error:
        found = error.update_error_dict({})
        raise ValidationError(
            {
                path if field == NON_FIELD_ERRORS else f"{path}.{field}": messages
                for field, messages in found.items()
            }
        ) from error


def _locked_host(engine: Engine, cpu: Cores, ram_mib: int | None, disk_mib: int | None) -> Host | None:
    if engine.host_id is not None:
        return lock_host(engine.host_id)
    if not (type(cpu) is int and ram_mib and disk_mib):
        raise ValidationError({"resources": "A fleet engine has no host: say how much of each is offered."})
    return None


def _totals(
    host: Host | None, cpu: Cores, ram_mib: int | None, disk_mib: int | None
) -> dict[str, tuple[str, int]]:
    """Kind and total of what every environment has; on a host the cores that are placed decide the first."""
    ram = host.usable_memory_mib if host and ram_mib is None else ram_mib or 0
    disk = host.usable_disk_mib if host and disk_mib is None else disk_mib or 0
    return {
        "cpu": (ResourceKind.CPU, cpu if host is None and isinstance(cpu, int) else 0),
        "ram": (ResourceKind.RAM, ram),
        "disk": (ResourceKind.DISK, disk),
    }


def _named_totals(
    devices: Mapping[str, Sequence[str]], counters: Mapping[str, int]
) -> dict[str, tuple[str, int]]:
    """The same of what this environment has besides."""
    return {
        **{name: (ResourceKind.DEVICE, len(uuids)) for name, uuids in devices.items()},
        **{name: (ResourceKind.COUNTER, total) for name, total in counters.items()},
    }


def _place_cores(environment: Environment, cpu: Cores) -> None:
    if environment.engine.host_id is not None:
        place_cores(environment, cpu if isinstance(cpu, str | Sequence) else choose_cores(environment, cpu))


def _add_resource(environment: Environment, slug: str, kind: str, total: int) -> Resource:
    with errors_at(f"resources.{slug}"):
        return write_resource(Resource(environment=environment), slug=slug, kind=kind, total=total)


def _add_devices(
    environment: Environment, resources: Mapping[str, Resource], devices: Mapping[str, Sequence[str]]
) -> None:
    for slug, uuids in devices.items():
        for uuid in uuids:
            with errors_at(f"resources.{slug}.devices"):
                device = Device.objects.filter(uuid=uuid).first()
                if device is None:
                    raise ValidationError(
                        f"There is no device {uuid}; detect the host or enter the device first."
                    )
                add_device(resources[slug], device)


def _limit(resources: Mapping[str, Resource], limits: Mapping[str, tuple[int, int]]) -> None:
    for slug, (least, most) in limits.items():
        with errors_at(f"resources.{slug}"):
            resource = _named(resources, slug)
            resource.refresh_from_db()
            resource.min, resource.max = least, most
            save_clean(resource)


def _add_free_tier(
    environment: Environment,
    resources: Mapping[str, Resource],
    free: Mapping[str, int] | None,
    fields: Mapping[str, Any],
) -> None:
    if free is None:
        return
    with errors_at("free_tier"):
        tier = save_clean(FreeTier(environment=environment, **fields))
    for slug, total in free.items():
        with errors_at(f"free_tier.resources.{slug}"):
            resource = _named(resources, slug)
            resource.refresh_from_db()
            write_free_part(FreeResource(free_tier=tier, resource=resource), total=total)


def _add_prices(
    environment: Environment,
    resources: Mapping[str, Resource],
    prices: Mapping[str, Decimal | int],
    currency: str,
) -> None:
    if not prices:
        return
    with errors_at("price_lists"):
        price_list = save_clean(PriceList(environment=environment, currency=currency))
    for slug, price in prices.items():
        with errors_at(f"prices.{slug}"):
            save_clean(Price(price_list=price_list, resource=_named(resources, slug), per_minute=price))


def unknown_resource(slug: str, resources: Iterable[str]) -> str:
    """What is said of a name that is no resource of the environment, whose resources are these."""
    return f"There is no resource {slug}; there are {', '.join(sorted(resources)) or 'none'}."


def _named(resources: Mapping[str, Resource], slug: str) -> Resource:
    if slug not in resources:
        raise ValidationError(unknown_resource(slug, resources))
    return resources[slug]
