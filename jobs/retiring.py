"""Retiring an environment, with a look at jobs that hold no reservation: those that the fleet runs."""

from django.core.exceptions import ValidationError
from django.db import transaction

from environments import editing
from environments.history import SITE, Author
from environments.models import EngineKind, Environment
from environments.rules import WAY_OUT
from jobs.models import Attempt
from jobs.models.attempt import UNFINISHED


def retire(environment: Environment, author: Author = SITE) -> None:
    """active or draining → retired, as `editing.retire`; that of the fleet too only when no job runs there.

    Raises ValidationError with the number of jobs, TransitionRefused if it is retired.
    """
    with transaction.atomic():
        editing.lock_for_edit(environment)
        if environment.engine.kind == EngineKind.FLEET:
            _refuse_running(environment)
        editing.retire(environment, author)


def _refuse_running(environment: Environment) -> None:
    """Needs the environment's lock: under it the fleet begins with a job."""
    running = Attempt.objects.filter(job__environment=environment, status__in=sorted(UNFINISHED)).count()
    if running:
        text = f"{running} jobs of {environment} are with the fleet's workers; {WAY_OUT}."
        raise ValidationError({"state": text})
