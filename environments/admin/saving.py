"""What an environment's page saves after its rows: devices, free parts, prices, cores; then every rule is checked."""

from collections.abc import Iterable
from decimal import Decimal

from django import forms
from django.core.exceptions import ValidationError

from compute_site.core.models import save_clean
from environments.editing import choose_cores, place_cores
from environments.models import (
    Environment,
    FreeResource,
    FreeTier,
    Price,
    PriceList,
    Resource,
    ResourceKind,
)
from environments.resources import AMOUNTS, set_devices, write_free_part, write_resource
from environments.setup import errors_at, unknown_resource

FREE_FIELDS = {name: f"free_{name}" for name in AMOUNTS}  # by column


def save_rows(
    environment: Environment, resources: Iterable[forms.ModelForm], prices: Iterable[forms.ModelForm]
) -> None:
    """Write what the rows of the page say beyond their own columns. Needs the host's lock; raises ValidationError."""
    tier = FreeTier.objects.filter(environment=environment).first()
    for row in resources:
        row.instance.refresh_from_db()  # the cpu total has followed the cores
        with errors_at(f"resources.{row.instance.slug}"):
            if "chosen_devices" in row.changed_data:
                with errors_at("chosen_devices"):
                    set_devices(row.instance, row.cleaned_data["chosen_devices"].order_by("pk"))
            if set(FREE_FIELDS.values()) & set(row.changed_data):
                _set_free_part(row.instance, row, tier)
    for row in prices:
        with errors_at(f"price_lists.{row.instance.currency}"):
            if "prices" in row.changed_data:
                _set_prices(row.instance, row.cleaned_data["prices"])


def save_cores(environment: Environment, text: str, *, named: bool, new: bool) -> None:
    """Named cores decide; else the cpu total does, with the lowest free cores; a missing cpu row takes all that is left.

    A ram row that a new environment lacks takes the host's memory less its reserve; one that was deleted stays so, for
    `check_environment` to refuse. Needs the host's lock; raises ValidationError.
    """
    cpu = Resource.objects.filter(environment=environment, kind=ResourceKind.CPU).first()
    total = cpu.total if cpu else None
    if cpu is None:
        write_resource(Resource(environment=environment), slug="cpu", kind=ResourceKind.CPU, total=0)
    if new and not Resource.objects.filter(environment=environment, kind=ResourceKind.RAM).exists():
        memory = environment.host.usable_memory_mib
        write_resource(Resource(environment=environment), slug="ram", kind=ResourceKind.RAM, total=memory)
    if named:
        place_cores(environment, text)
    elif total != environment.cores.count() or not total:
        place_cores(environment, choose_cores(environment, total or None))


def _set_free_part(resource: Resource, row: forms.ModelForm, tier: FreeTier | None) -> None:
    total, least, most = (row.cleaned_data[name] for name in FREE_FIELDS.values())
    if total is None:
        FreeResource.objects.filter(resource=resource).delete()
        return
    if tier is None:
        raise ValidationError(
            {"free_total": "There is no free tier; add one on its tab, or leave this empty."}
        )
    part = FreeResource.objects.filter(resource=resource, free_tier=tier).first()
    part = part or FreeResource(resource=resource, free_tier=tier)
    part.resource = resource
    try:
        write_free_part(part, total=total, min=least or 0, max=most)
    except ValidationError as error:
        found = error.update_error_dict({})
        raise ValidationError(
            {FREE_FIELDS.get(field, field): texts for field, texts in found.items()}
        ) from error


def _set_prices(price_list: PriceList, prices: dict[str, Decimal]) -> None:
    resources = {
        resource.slug: resource for resource in Resource.objects.filter(environment=price_list.environment)
    }
    unknown = [slug for slug in prices if slug not in resources]
    if unknown:
        raise ValidationError(
            {"prices": [f"{slug}: {unknown_resource(slug, resources)}" for slug in unknown]}
        )
    price_list.prices.exclude(resource__slug__in=prices).delete()
    for slug, amount in prices.items():
        price = Price.objects.filter(price_list=price_list, resource=resources[slug]).first()
        price = price or Price(price_list=price_list, resource=resources[slug])
        price.per_minute = amount
        try:
            save_clean(price)
        except ValidationError as error:
            raise ValidationError({"prices": [f"{slug}: {text}" for text in error.messages]}) from error
