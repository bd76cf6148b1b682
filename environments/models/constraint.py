"""What a job that asks for one resource gets of another."""

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from compute_site.core.db import in_list
from compute_site.core.models import StrictNumbers
from environments.models.environment import Environment
from environments.models.resource import Resource, ResourceKind


def constraint_path(resource: str, target: str, per_unit: bool) -> str:
    """Where errors of a constraint stand: "constraints.gpu.ram.per_unit"."""
    return f"constraints.{resource}.{target}.{'per_unit' if per_unit else 'absolute'}"


def not_one_target(*, both: bool) -> str:
    """A constraint names a resource or a kind."""
    return f"Found {'both' if both else 'neither'}; name one resource as the target, or one kind."


class Constraint(StrictNumbers):
    """Once a job has any of `resource`, it gets at least `min` of the target and may have at most `max` of it.

    The target is one resource, or all resources of a kind together. Per unit, both numbers are for each unit of
    `resource`: a core, a device, a count, or a GiB of memory or disk. Numbers of memory and disk are MiB.
    """

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="constraints")
    resource = models.ForeignKey(
        Resource, on_delete=models.CASCADE, related_name="constraints", help_text="What is asked for."
    )
    # RESTRICT is PROTECT that still lets a whole environment go, its constraints with it.
    target = models.ForeignKey(
        Resource,
        on_delete=models.RESTRICT,
        null=True,
        blank=True,
        related_name="+",
        help_text="What it then takes: one resource of the environment; empty = all of a kind.",
    )
    target_kind = models.CharField(
        max_length=16,
        choices=ResourceKind,
        blank=True,
        help_text="In place of a target: all resources of this kind together, for example devices.",
    )
    per_unit = models.BooleanField(
        default=True,
        help_text="On (default): min and max are for each core, device, count, or GiB of memory or disk that is asked."
        " Off: they are for the job, as soon as it asks for any.",
    )
    aggregate = models.BooleanField(
        default=False,
        help_text="Adds up with the other constraints on this target that are marked so, for example when two kinds"
        " of GPU each bring memory. Off (default): each counts alone.",
    )
    min = models.PositiveBigIntegerField(
        default=0,
        help_text="Least of the target, in MiB for memory and disk: a smaller request is raised to it."
        " Default 0 = none. Example: 8192 of ram for each gpu.",
    )
    max = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Most of the target, in MiB for memory and disk: a larger request is refused."
        " Empty (default) = no limit. Example: 65536 of ram for each gpu.",
    )

    class Meta:
        ordering = ["environment", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["resource", "target", "per_unit"],
                name="constraint_once_per_target",
                violation_error_message="There is such a constraint already; change that one.",
            ),
            models.UniqueConstraint(
                fields=["resource", "target_kind", "per_unit"],
                condition=~Q(target_kind=""),
                name="constraint_once_per_target_kind",
                violation_error_message="There is such a constraint already; change that one.",
            ),
            models.CheckConstraint(
                name="constraint_kind_known",
                condition=Q(target_kind="") | in_list("target_kind", ResourceKind.values),
            ),
            models.CheckConstraint(
                name="constraint_one_target",
                condition=Q(target__isnull=True) & ~Q(target_kind="")
                | Q(target__isnull=False, target_kind=""),
                violation_error_message="A constraint has one target: a resource or a kind.",
            ),
            models.CheckConstraint(
                name="constraint_target_is_another",
                condition=Q(target__isnull=True) | ~Q(target=F("resource")),
                violation_error_message="A constraint is between two resources.",
            ),
            models.CheckConstraint(
                name="constraint_min_max_ordered",
                condition=Q(max__isnull=True) | Q(min__lte=F("max")),
                violation_error_message="min <= max must hold.",
            ),
            models.CheckConstraint(
                name="constraint_says_something",
                condition=Q(min__gt=0) | Q(max__isnull=False),
                violation_error_message="A constraint has a min, a max or both.",
            ),
            models.CheckConstraint(
                name="constraint_aggregate_of_one_resource",
                condition=Q(aggregate=False) | Q(target__isnull=False),
                violation_error_message="Only constraints on one resource add up.",
            ),
        ]

    def __str__(self) -> str:
        most = "" if self.max is None else f", at most {self.max}"
        each = "each" if self.per_unit else "any"
        return f"{each} {self.resource}: at least {self.min}{most} of {self.target or self.target_kind}"

    def clean(self) -> None:
        """One target, another than the resource, both of the environment; min <= max. Raises ValidationError with fields."""
        errors = self._target_errors()
        if type(self.min) is int and type(self.max) is int and self.min > self.max:
            errors["min"] = f"{self.min} is more than the max of {self.max}; lower it or raise the max."
        if self.min == 0 and self.max is None:
            errors["min"] = "Neither a min nor a max; enter one, or remove the constraint."
        if errors:
            raise ValidationError(errors)

    def _target_errors(self) -> dict[str, str]:
        errors = {}
        if self.resource.environment_id != self.environment_id:
            errors["resource"] = f"{self.environment} has no such resource."
        if (self.target is None) == (self.target_kind == ""):
            errors["target"] = not_one_target(both=bool(self.target_kind))
        elif self.target is not None and self.target.environment_id != self.environment_id:
            errors["target"] = f"{self.environment} has no such resource."
        elif self.target == self.resource:
            errors["target"] = f"{self.resource} itself; its own min and max say how much one job gets of it."
        if self.aggregate and self.target_kind:
            errors["aggregate"] = "Only constraints on one resource add up; leave it off for a kind."
        return errors
