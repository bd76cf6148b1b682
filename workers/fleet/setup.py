"""What an operator prepares: an environment that the fleet serves, and owners with their keys."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction

from compute_site.core.models import save_clean
from environments.editing import activate_engine
from environments.models import Engine, EngineKind, EngineState, Environment
from environments.setup import create_environment
from jobs.billing.models import Account
from workers.fleet.models import FleetPolicy, Owner, OwnerKey

ENGINE = "fleet"


def create_fleet_environment(
    slug: str,
    audit_environment: Environment,
    *,
    most: Mapping[str, int],
    policy: Mapping[str, Any],
    **fields: Any,
) -> Environment:
    """Make an environment on the fleet's engine (made when it is not there, and activated), with its policy.

    `most` says how many cores and MiB of ram and disk one job may get; `fields` as of `create_environment`. Raises
    ValidationError; then nothing was written.
    """
    with transaction.atomic():
        engine = Engine.objects.filter(name=ENGINE).first()
        if engine is None:
            engine = save_clean(Engine(name=ENGINE, kind=EngineKind.FLEET))
        environment = create_environment(
            engine, slug, cpu=most["cpu"], ram_mib=most["ram"], disk_mib=most["disk"], **fields
        )
        save_clean(FleetPolicy(environment=environment, audit_environment=audit_environment, **policy))
        if engine.state == EngineState.DISABLED:
            activate_engine(engine)
    return environment


def create_owner(account: Account, keys: Iterable[str]) -> Owner:
    """Make an owner of these public keys. Raises ValidationError; then nothing was written."""
    with transaction.atomic():
        owner = save_clean(Owner(account=account))
        for key in keys:
            save_clean(OwnerKey(owner=owner, key=key))
    return owner
