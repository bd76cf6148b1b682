"""Retiring an environment and disabling an engine, with a look at the fleet: its jobs hold no reservation, and its audits
need an environment of ours."""

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from compute_site.core.db import lock, lock_one
from environments import editing
from environments.history import SITE, Author
from environments.models import Engine, EngineKind, Environment, EnvironmentState
from environments.rules import WAY_OUT
from jobs.models import Attempt
from jobs.models.attempt import UNFINISHED
from workers.fleet.models import FleetPolicy


def retire(environment: Environment, author: Author = SITE) -> None:
    """active or draining → retired, as `editing.retire`; that of the fleet too only when no job runs there, and none
    where the fleet's audits run.

    Raises ValidationError with the number of jobs or the policies, TransitionRefused if it is retired.
    """
    with transaction.atomic():
        editing.lock_for_edit(environment)
        _refuse_audits(environment)
        if environment.engine.kind == EngineKind.FLEET:
            _refuse_running(Attempt.objects.filter(job__environment=environment), environment, WAY_OUT)
        editing.retire(environment, author)


def disable(engine: Engine) -> None:
    """→ disabled, as `editing.disable_engine`; that of the fleet too only when no job runs there.

    Raises ValidationError with the number of jobs.
    """
    with transaction.atomic():
        if engine.kind == EngineKind.FLEET:
            lock_one(Engine.objects.filter(pk=engine.pk))
            lock(Environment.objects.filter(engine=engine))
            running = Attempt.objects.filter(engine=engine)
            _refuse_running(running, engine, "drain it and wait, then try again")
        editing.disable_engine(engine)


def _refuse_audits(environment: Environment) -> None:
    """A policy whose own environment is retired makes no audits any more."""
    policies = FleetPolicy.objects.filter(audit_environment=environment)
    policies = policies.exclude(environment__state=EnvironmentState.RETIRED)
    names = [str(policy) for policy in policies.select_related("environment__engine").order_by("pk")]
    if names:
        text = (
            f"The fleet's audits of {', '.join(names)} run on {environment}; name another audit environment in its fleet"
            f" policy, or retire {names[0]} first."
        )
        raise ValidationError({"state": text})


def _refuse_running(attempts: QuerySet[Attempt], place: Environment | Engine, way_out: str) -> None:
    """Needs the lock of every environment there: under it the fleet begins with a job."""
    running = attempts.filter(status__in=sorted(UNFINISHED)).count()
    if running:
        text = f"{running} jobs of {place} are with the fleet's workers; {way_out}."
        raise ValidationError({"state": text})
