"""The benchmark environment: all of a host, for those who measure it. A tool, not an offer; kept in step with its host.

The one exception to the ownership of cores: it has none, and its jobs claim free cores of the host, whoever owns them.
In return a job of it runs alone: it starts only while nobody holds anything of the host, nobody starts while it runs,
and the next one starts MAX_BYPASS_SECONDS later at the earliest, so that a line of them keeps nobody else waiting for
long. That exception stands in `environments/alone.py`, judged under the host's lock.
"""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model
from django.utils.text import slugify

from compute_site.core.db import lock_one
from compute_site.core.models import number_error, save_changed, save_clean
from compute_site.core.numbers import shown
from environments import editing
from environments.history import SITE, find, record
from environments.models import (
    AccessKind,
    AccessRule,
    Device,
    Engine,
    Environment,
    EnvironmentState,
    Host,
    Price,
    PriceList,
    Resource,
    ResourceKind,
    Tier,
)
from environments.models.offer import currency_error
from environments.reservations import lock_host
from environments.resources import set_devices, write_resource
from environments.rules import NEEDED, check_environment

SLUG = "benchmark"
DESCRIPTION = (
    "Measures this machine; not an offer. A job may have all of it, runs alone, and starts when nobody else holds"
    " anything of it."
)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the settings say."""

    rules: frozenset[tuple[str, str]]
    seconds: int
    currency: str
    core_price: Decimal


def keep_host_in_step(host: Host) -> list[str]:
    """The same for every engine of the host whose switch is on; after a change of what the host has."""
    engines = Engine.objects.filter(host=host, enable_benchmark=True).order_by("pk")
    return [warning for engine in engines for warning in keep_in_step(engine)]


def keep_in_step(engine: Engine) -> list[str]:
    """Make, change or retire the engine's benchmark environment, as its switch says; all in one transaction.

    Before: any. After: switch on = one that spans the host as it is, open to BENCHMARK_USERS and BENCHMARK_ADDRESSES;
    off = none, or a retired one. Returns why there is none, or the one of before, although the switch is on: settings that
    are missing or wrong, a host not yet detected, a name that is taken. Raises ValidationError when a job of it runs and
    would lose what it holds.
    """
    with transaction.atomic():
        if engine.host_id is None:
            return []
        host = lock_host(engine.host_id)
        fresh = lock_one(Engine.objects.filter(pk=engine.pk))
        row = Environment.objects.filter(engine=fresh, benchmark=True).select_related("engine").first()
        if not fresh.enable_benchmark:
            if row is not None and row.state != EnvironmentState.RETIRED:
                _retire(row)
            return []
        try:
            _check_room(fresh, host)
            terms = _read_terms()
        except ValidationError as error:
            return [f"{fresh}: {_standing(row)} {text}" for text in error.messages]
        _write(row or Environment(engine=fresh, slug=SLUG, benchmark=True), host, terms)
    return []


def _standing(row: Environment | None) -> str:
    """What wrong settings leave: nothing, or what was made with those before them."""
    if row is None or row.state == EnvironmentState.RETIRED:
        return "there is no benchmark environment yet."
    return (
        "the benchmark environment stays as it was, open to the same people, until enable_benchmark is off."
    )


def _retire(environment: Environment) -> None:
    try:
        editing.retire(environment)
    except ValidationError as error:
        raise ValidationError({"enable_benchmark": error.messages}) from error


def _check_room(engine: Engine, host: Host) -> None:
    """Whether there is something to measure, and the name to do it by. Raises ValidationError with the way out."""
    if min(host.cpu_count, host.usable_memory_mib, host.usable_disk_mib) < 1:
        text = (
            f"{host} has no core, memory or disk without its reserve: detect the host, or lower the reserve."
        )
        raise ValidationError(text)
    if Environment.objects.filter(engine=engine, slug=SLUG, benchmark=False).exists():
        raise ValidationError(f"{engine}/{SLUG} is an offer: give that environment another slug.")


def _read_terms() -> _Terms:
    rules = {(AccessKind.USER.value, name) for name in _names(settings.BENCHMARK_USERS)}
    rules |= {(AccessKind.ADDRESS.value, name.lower()) for name in _names(settings.BENCHMARK_ADDRESSES)}
    longest = _field(AccessRule, "value").max_length
    if long := [name for _, name in rules if len(name) > longest]:
        text = f"{shown(long[0])} is longer than {longest} characters in lower case: no rule can name it."
        raise ValidationError(f"BENCHMARK_USERS, BENCHMARK_ADDRESSES: {text}")
    if not rules:
        raise ValidationError("Set BENCHMARK_USERS or BENCHMARK_ADDRESSES: it is never open to everybody.")
    if settings.BENCHMARK_SECONDS < 1:
        raise ValidationError("Set BENCHMARK_SECONDS: the longest run of a job there.")
    if error := number_error(_field(Environment, "max_job_duration"), settings.BENCHMARK_SECONDS):
        raise ValidationError(f"BENCHMARK_SECONDS: {error}")
    currency = settings.BENCHMARK_CURRENCY
    if currency_error(currency) or len(currency) > _field(PriceList, "currency").max_length:
        raise ValidationError("Set BENCHMARK_CURRENCY: credit, or chain id and token such as 1:0x967d….")
    try:
        price = Decimal(settings.BENCHMARK_CORE_PRICE)
    except InvalidOperation:
        text = f"Found BENCHMARK_CORE_PRICE “{settings.BENCHMARK_CORE_PRICE}”; set the price of a core per minute."
        raise ValidationError(text) from None
    if error := number_error(_field(Price, "per_minute"), price):
        raise ValidationError(f"BENCHMARK_CORE_PRICE: {error}")
    return _Terms(frozenset(rules), settings.BENCHMARK_SECONDS, currency, price)


def _names(listed: list[str]) -> set[str]:
    """A list such as “ada, bob” has spaces that belong to nobody's name."""
    return {name.strip() for name in listed} - {""}


def _field(model: type[Model], name: str) -> Any:
    return model._meta.get_field(name)


def _write(environment: Environment, host: Host, terms: _Terms) -> None:
    """All rows, only those that differ; then every rule. Needs the host's lock."""
    if environment.pk is not None:
        find(environment)
    if environment.state != EnvironmentState.ACTIVE:
        editing.revive(environment)
    expiry = Environment._meta.get_field("storage_expiry").get_default()
    fields = {
        "description": DESCRIPTION,
        "max_job_duration": terms.seconds,
        "min_job_duration": min(60, terms.seconds),
        "storage_expiry": max(expiry, terms.seconds),
    }
    save_changed(environment, fields)
    _write_resources(environment, host)
    _write_price(environment, terms)
    _write_access(environment, terms)
    check_environment(environment)
    record(environment, SITE)


def _write_resources(environment: Environment, host: Host) -> None:
    devices: dict[str, list[Device]] = defaultdict(list)
    for device in Device.objects.filter(host=host).order_by("pk"):
        devices[_slug_of(device)].append(device)
    totals: dict[str, tuple[str, int]] = {
        "cpu": (ResourceKind.CPU, host.cpu_count),
        "ram": (ResourceKind.RAM, host.usable_memory_mib),
        "disk": (ResourceKind.DISK, host.usable_disk_mib),
        **{slug: (ResourceKind.DEVICE, len(found)) for slug, found in devices.items()},
    }
    there = {row.slug: row for row in Resource.objects.filter(environment=environment)}
    for slug in there.keys() - totals.keys():  # a kind of device that is gone; old reservations refer to it
        totals[slug] = (there[slug].kind, 0)
    for slug, (kind, total) in totals.items():
        row = there.get(slug) or Resource(environment=environment)
        set_devices(write_resource(row, slug=slug, kind=kind, total=total), devices.get(slug, []))


def _slug_of(device: Device) -> str:
    """By its kind, whatever an operator calls it; never the name of what is no device."""
    slug = slugify(device.kind).replace("_", "-") or "device"
    return f"{slug}-device" if slug in NEEDED else slug


def _write_price(environment: Environment, terms: _Terms) -> None:
    lists = PriceList.objects.filter(environment=environment)
    lists.exclude(currency=terms.currency).delete()
    prices = lists.first() or save_clean(PriceList(environment=environment, currency=terms.currency))
    cpu = Resource.objects.get(environment=environment, kind=ResourceKind.CPU)
    row = Price.objects.filter(price_list=prices, resource=cpu).first()
    save_changed(row or Price(price_list=prices, resource=cpu), {"per_minute": terms.core_price})


def _write_access(environment: Environment, terms: _Terms) -> None:
    wanted = set(terms.rules)
    for row in AccessRule.objects.filter(environment=environment):
        if row.tier != Tier.PAID or (row.kind, row.value) not in wanted:
            row.delete()
        wanted.discard((row.kind, row.value))
    for kind, value in sorted(wanted):
        save_clean(AccessRule(environment=environment, tier=Tier.PAID, kind=kind, value=value))
