"""Back to an earlier state of an environment: an import of what its history kept, so through the same rules and locks."""

from typing import Any

from django.core.exceptions import ValidationError

from environments.exporting import export_engine
from environments.history import Author, configuration
from environments.importing import Choice, Plan, import_configuration
from environments.models import Edit, EngineKind, Environment, EnvironmentState


def no_way_back(environment: Environment) -> str:
    """Why no earlier state of this environment can be brought back; empty for one whose can."""
    if environment.state == EnvironmentState.RETIRED:
        return f"{environment} is retired for good: make a new environment with what it had."
    if environment.benchmark:
        return f"{environment} follows its host and the BENCHMARK settings: change those instead."
    if environment.engine.kind != EngineKind.DOCKER:
        return (
            f"{environment} is served by the fleet. A revert is an import, and what is imported stands on a host of ours:"
            " enter the earlier values on its page instead."
        )
    return ""


def revert(edit: Edit, author: Author, *, expected: str = "", dry_run: bool = False) -> Plan:
    """Make the environment what it was after this edit; its slug and state stay. Returns what was done, or would be.

    `expected` is the fingerprint of a plan that somebody agreed to: any other plan is not applied. Raises
    ValidationError as an import does, for example with the numbers that jobs still hold; then nothing was written.
    """
    environment = edit.environment
    engine = environment.engine
    if why_not := no_way_back(environment):
        raise ValidationError(why_not)
    # An import leaves labels alone of which it says nothing; here that means none.
    then: dict[str, Any] = {"labels": {}, **configuration(edit), "id": environment.slug}
    whole = [{**export_engine(engine), "environments": [then]}]
    choice = Choice(engine=engine.name, dry_run=dry_run, expected=expected)
    return import_configuration(whole, choice, author)
