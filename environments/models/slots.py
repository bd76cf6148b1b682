"""Slots: which cores and devices the live workers of an engine may reserve. No two of one engine share any."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.constraints import ExclusionConstraint
from django.db import models
from django.db.models import F, Func, Q, Value

from compute_site.core.db import ClockTimestamp
from environments.cpuset import format_cores
from environments.models.engine import Engine

Numbers = frozenset[int] | None  # None: every number there is, also those that will be


class NumberSetField(models.Field):
    """A set of whole numbers, or None for all there are. PostgreSQL keeps it as a multirange: of those it can refuse
    two that overlap.
    """

    def db_type(self, connection: Any) -> str:
        return "int8multirange"

    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:
        return "%s::int8multirange"

    def get_prep_value(self, value: Any) -> Any:
        return multirange(value)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Numbers:
        if any(span.lower is None for span in value):
            return None
        return frozenset(number for span in value for number in range(span.lower, span.upper))


def multirange(numbers: Iterable[int] | None) -> str:
    """The numbers as PostgreSQL reads an `int8multirange`."""
    if numbers is None:
        return "{(,)}"
    return "{" + ",".join(f"[{number},{number + 1})" for number in sorted(numbers)) + "}"


@dataclass(frozen=True, slots=True)
class SlotSet:
    """Cores by index and devices by key; None means all of the engine."""

    cores: Numbers = None
    devices: Numbers = None

    def common(self, other: "SlotSet") -> "SlotSet":
        """What is in both."""
        return SlotSet(_common(self.cores, other.cores), _common(self.devices, other.devices))

    @property
    def some(self) -> bool:
        """Whether it has any core or device."""
        return self.cores != frozenset() or self.devices != frozenset()

    @property
    def core_text(self) -> str:
        """`0-3,8`, or `all`."""
        return "all" if self.cores is None else format_cores(self.cores)


def _common(one: Numbers, other: Numbers) -> Numbers:
    if one is None or other is None:
        return other if one is None else one
    return one & other


ALL = SlotSet()
# The engine as a range of one number: equality beside a multirange would need an extension of PostgreSQL.
SAME_ENGINE = Func(F("engine"), F("engine"), Value("[]"), function="int8range", output_field=NumberSetField())


class Slots(models.Model):
    """What one worker may reserve on its engine: all of it, or the cores and devices that were named.

    Live as long as its worker is, and released with it. Cores are indexes of the engine's host, devices are keys.
    """

    engine = models.ForeignKey(Engine, on_delete=models.PROTECT, related_name="slots")
    holder = models.CharField(max_length=320, help_text="The worker that has them, as people know it.")
    cores = NumberSetField(help_text="Core indexes; all of the engine's if none were named.")
    devices = NumberSetField(help_text="Device keys; all of the engine's if no core was named.")
    taken_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    released_at = models.DateTimeField(null=True, editable=False, help_text="When their worker ended.")

    class Meta:
        verbose_name_plural = "slots"
        constraints = [
            ExclusionConstraint(
                name=f"slots_one_worker_per_{thing}",
                expressions=[(SAME_ENGINE, "&&"), (f"{thing}s", "&&")],
                condition=Q(released_at__isnull=True),
            )
            for thing in ("core", "device")
        ]

    def __str__(self) -> str:
        return f"slots of worker {self.holder}"

    @property
    def members(self) -> SlotSet:
        """The same without the row."""
        return SlotSet(self.cores, self.devices)

    @property
    def queue(self) -> str:
        """The Celery queue on which their worker alone hears knocks: the engine's own when it has all of the engine."""
        return self.engine.queue if self.cores is None else f"{self.engine.queue}.{min(self.cores)}"
