"""What environments offer, as a client reads it. Never paths of hosts, devices' own settings or other people's data."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Count, Prefetch, QuerySet
from rest_framework import serializers

from compute_site.core.db import database_now
from environments.access import Person, explained, visible_to
from environments.models import Constraint, Environment, EnvironmentState, FreeTier, ResourceKind, Tier
from environments.reservations import free_amounts
from environments.use import ResourceUse
from jobs.estimate import Estimates
from jobs.models import Job, JobStatus
from jobs.obstacles import offer_reasons


class Offered(serializers.Serializer):
    """One resource: what there is, what is free now, and how much one job may ask."""

    kind = serializers.CharField()
    total = serializers.IntegerField()
    free = serializers.IntegerField()
    min = serializers.IntegerField()
    max = serializers.IntegerField()


class ConstraintOffer(serializers.Serializer):
    """What a job that asks for one resource gets of another: at least `min`, at most `max`. Memory and disk in MiB."""

    resource = serializers.CharField(help_text="What is asked for.")
    target = serializers.CharField(
        allow_null=True, help_text="What it then takes; null = all of target_kind."
    )
    target_kind = serializers.ChoiceField(
        choices=ResourceKind.choices, allow_null=True, help_text="All resources of this kind together."
    )
    per_unit = serializers.BooleanField(
        help_text="For each core, device, count, or GiB of memory or disk; else for the job."
    )
    aggregate = serializers.BooleanField(help_text="Adds up with others on the same target.")
    min = serializers.IntegerField(help_text="A smaller request is raised to it.")
    max = serializers.IntegerField(allow_null=True, help_text="A larger request is refused; null = no limit.")


class Limits(serializers.Serializer):
    """Limits of one tier. Durations in seconds; no number = no limit."""

    min_job_duration = serializers.IntegerField(help_text="Shortest billed duration.")
    max_job_duration = serializers.IntegerField(help_text="Longest run.")
    storage_expiry = serializers.IntegerField(help_text="Results are kept that long.")
    max_jobs = serializers.IntegerField(allow_null=True, help_text="Most jobs at once.")
    estimated_wait = serializers.IntegerField(
        allow_null=True,
        help_text="Seconds until one more job that asks the least starts at the latest, by the deadlines of those that"
        " run and wait; null = unknown.",
    )


class FreeOffer(Limits):
    """The part that may be used without paying."""

    resources = serializers.DictField(child=Offered())


class TierAccess(serializers.Serializer):
    """Whether you may use a tier, and who may. Of a tier that is not open to you neither prices nor amounts are told."""

    open = serializers.BooleanField()
    explained = serializers.CharField()


class Access(serializers.Serializer):
    """By tier."""

    paid = TierAccess()
    free = TierAccess()


class PriceOffer(serializers.Serializer):
    """Prices per unit and minute in one currency, as decimal text."""

    currency = serializers.CharField()
    prices = serializers.DictField(child=serializers.CharField())


class Offer(Limits):
    """One environment as offered."""

    id = serializers.UUIDField()
    name = serializers.CharField(help_text="engine/slug, also taken in place of the id.")
    description = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField(), help_text="What a selector may ask for.")
    state = serializers.ChoiceField(choices=EnvironmentState.choices)
    architecture = serializers.CharField()
    operating_system = serializers.CharField()
    network = serializers.BooleanField()
    benchmark = serializers.BooleanField(
        help_text="Measures its machine and is no offer; a job of it runs there alone."
    )
    max_queue_wait = serializers.IntegerField(allow_null=True)
    access = Access()
    resources = serializers.DictField(child=Offered())
    constraints = ConstraintOffer(many=True)
    prices = PriceOffer(many=True)
    free_tier = FreeOffer(allow_null=True)
    queued = serializers.IntegerField(help_text="Jobs that wait now.")


def offered_environments(person: Person) -> QuerySet[Environment]:
    """Environments that `person` may use in some tier, or measure their hosts with, with their prices and constraints,
    and with which tiers are open."""
    constraints = Constraint.objects.select_related("resource", "target")
    return visible_to(person).prefetch_related(
        "price_lists__prices__resource", Prefetch("constraints", constraints)
    )


def offers(environments: Iterable[Environment]) -> list[dict[str, Any]]:
    """One offer for each of the `offered_environments`, with what is free now; as many statements for a hundred as for
    one. Of a tier that is not open there are no prices, no amounts and no estimate."""
    rows = list(environments)
    now = database_now()
    amounts = free_amounts(rows)
    estimates = Estimates(rows, now, amounts)
    waiting = Job.objects.filter(environment__in=rows, status=JobStatus.QUEUED).order_by()
    queued = dict(waiting.values_list("environment").annotate(Count("pk")))
    found = []
    for row in rows:
        starts = row.engine.host is not None and not any(offer_reasons(row, now))
        access = _access(row)
        told = [tier for tier in Tier.values if starts and access[tier]["open"]]
        waits = {tier: estimates.of_next(row, tier) if tier in told else None for tier in Tier.values}
        found.append({**_offer(row, amounts[row.pk], access, waits), "queued": queued.get(row.pk, 0)})
    return found


def _access(environment: Environment) -> dict[str, dict[str, Any]]:
    found = {}
    for tier in Tier.values:
        is_open, kinds = getattr(environment, f"{tier}_open"), getattr(environment, f"{tier}_rules")
        found[tier] = {"open": is_open, "explained": explained(is_open, kinds)}
    return found


def _offer(
    environment: Environment,
    uses: Mapping[str, ResourceUse],
    access: Mapping[str, Mapping[str, Any]],
    waits: Mapping[str, int | None],
) -> dict[str, Any]:
    host, is_open = environment.engine.host, {tier: access[tier]["open"] for tier in Tier.values}
    return {
        "id": environment.public_id,
        "name": str(environment),
        "description": environment.description,
        "labels": environment.labels,
        "state": environment.state,
        "architecture": host.architecture if host else "",
        "operating_system": host.operating_system if host else "",
        "network": environment.enable_network,
        "benchmark": environment.benchmark,
        "max_queue_wait": environment.max_queue_wait,
        **_limits(environment),
        "estimated_wait": waits[Tier.PAID],
        "access": access,
        "resources": {slug: _paid_part(use) for slug, use in uses.items()},
        "constraints": [_constraint(row) for row in environment.constraints.all()],
        "prices": _prices(environment) if is_open[Tier.PAID] else [],
        "free_tier": _free_offer(environment, uses, waits[Tier.FREE]) if is_open[Tier.FREE] else None,
    }


def _prices(environment: Environment) -> list[dict[str, Any]]:
    return [
        {
            "currency": price_list.currency,
            "prices": {
                price.resource.slug: format(price.per_minute, "f") for price in price_list.prices.all()
            },
        }
        for price_list in environment.price_lists.all()
    ]


def _limits(source: Environment | FreeTier) -> dict[str, Any]:
    names = ("min_job_duration", "max_job_duration", "storage_expiry", "max_jobs")
    return {name: getattr(source, name) for name in names}


def _constraint(row: Constraint) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in ("per_unit", "aggregate", "min", "max")}
    target = row.target.slug if row.target else None
    return {"resource": row.resource.slug, "target": target, "target_kind": row.target_kind or None, **values}


def _paid_part(use: ResourceUse) -> dict[str, Any]:
    most = use.capped(use.max)
    return {"kind": use.kind, "total": use.offered, "free": use.free, "min": use.min, "max": most}


def _free_offer(
    environment: Environment, uses: Mapping[str, ResourceUse], wait: int | None
) -> dict[str, Any] | None:
    free_tier = getattr(environment, "free_tier", None)
    if free_tier is None:
        return None
    parts = {
        slug: {
            "kind": use.kind,
            "total": use.capped(use.free_tier_total),
            "free": use.free_tier_free,
            "min": use.free_tier_min,
            "max": use.capped(use.free_tier_max or 0),
        }
        for slug, use in uses.items()
        if use.free_tier_total is not None
    }
    return {**_limits(free_tier), "estimated_wait": wait, "resources": parts}
