"""What an environment costs, and what of it is free."""

import re
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Q

from compute_site.core.models import StrictNumbers
from compute_site.core.numbers import shown
from environments.models.environment import Environment, duration_errors
from environments.models.resource import Resource, amount_errors

WORD = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")  # a currency of our own, such as credit
TOKEN = re.compile(r"[0-9]{1,20}:[^\s:]+\Z")
CURRENCY_TWICE = "This environment already has a price list in this currency."
NO_PRICE = "Found no price; add one, or take the price list out."


def price_twice(slug: object) -> str:
    """A resource has one price in each list."""
    return f"{slug} has two prices; keep one."


def currency_error(currency: str) -> str:
    """What is wrong with the name of a currency; empty when it is a word of ours, or chain id and token."""
    if WORD.match(currency) or TOKEN.match(currency):
        return ""
    return f"Found {shown(currency)}; write credit or another word in lower case, or chain id and token as in 1:0x967d…."


class PriceList(models.Model):
    """Prices of one environment in one currency; it has at least one (a rule across rows: `rules.py`)."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="price_lists")
    currency = models.CharField(
        max_length=128, default="credit", help_text="“credit”, or chain id and token address."
    )

    class Meta:
        ordering = ["environment", "currency"]
        constraints = [
            models.UniqueConstraint(
                fields=["environment", "currency"],
                name="price_list_once_per_currency",
                violation_error_message=CURRENCY_TWICE,
            ),
        ]

    def __str__(self) -> str:
        return self.currency

    def clean(self) -> None:
        """A word of ours, or chain and token, which has one list however it is spelt. Raises ValidationError with fields."""
        if error := currency_error(self.currency):
            raise ValidationError({"currency": error})
        same = PriceList.objects.filter(environment=self.environment_id, currency__iexact=self.currency)
        if same.exclude(pk=self.pk).exclude(currency=self.currency).exists():
            raise ValidationError({"currency": CURRENCY_TWICE})


class Price(StrictNumbers):
    """Price of one unit of one resource per minute (a core, a MiB, a device)."""

    price_list = models.ForeignKey(PriceList, on_delete=models.CASCADE, related_name="prices")
    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="prices")
    per_minute = models.DecimalField(
        max_digits=38,
        decimal_places=18,
        validators=[MinValueValidator(Decimal(0))],
        help_text="Price of one unit per minute, 0 or more, at most 18 decimals.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["price_list", "resource"], name="price_once_per_resource"),
            models.CheckConstraint(
                name="price_not_negative",
                condition=Q(per_minute__gte=0) & Q(per_minute__lt=Decimal(10) ** 20),
                violation_error_message="A price is a finite number, 0 or more.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.resource} {self.per_minute}"

    def clean(self) -> None:
        """A price names a resource of its own environment. Raises ValidationError with fields."""
        if self.resource.environment_id != self.price_list.environment_id:
            raise ValidationError({"resource": f"{self.price_list.environment} has no such resource."})


class FreeTier(StrictNumbers):
    """The part of an environment that may be used without paying. A resource not listed is not available to it."""

    environment = models.OneToOneField(Environment, on_delete=models.CASCADE, related_name="free_tier")
    min_job_duration = models.PositiveIntegerField(
        default=60, help_text="Shortest counted duration in seconds."
    )
    max_job_duration = models.PositiveIntegerField(
        default=3_600, help_text="Longest run of a free job in seconds."
    )
    max_jobs = models.PositiveIntegerField(default=3, help_text="Most free jobs at once.")
    storage_expiry = models.PositiveIntegerField(
        default=604_800, help_text="Seconds for which results of free jobs are kept."
    )
    allow_image_build = models.BooleanField(default=False, help_text="Whether free jobs may build images.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="free_tier_expiry_covers_duration",
                condition=Q(storage_expiry__gte=F("max_job_duration")),
                violation_error_message="storage_expiry must be at least max_job_duration.",
            ),
            models.CheckConstraint(
                name="free_tier_durations_ordered",
                condition=Q(min_job_duration__gt=0, min_job_duration__lte=F("max_job_duration")),
                violation_error_message="Durations are greater than 0 and min_job_duration must not exceed max_job_duration.",
            ),
        ]

    def __str__(self) -> str:
        return f"free tier of {self.environment}"

    def clean(self) -> None:
        """Durations fit together. Raises ValidationError with fields."""
        errors = duration_errors(self)
        if errors:
            raise ValidationError(errors)


class FreeResource(StrictNumbers):
    """How much of one resource free jobs may use. `max` defaults to `total`, never to “unlimited”."""

    free_tier = models.ForeignKey(FreeTier, on_delete=models.CASCADE, related_name="resources")
    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="free_parts")
    total = models.PositiveBigIntegerField(
        help_text="What free jobs may use in all; at most the resource's total."
    )
    min = models.PositiveBigIntegerField(default=0, help_text="Least a free job gets.")
    max = models.PositiveBigIntegerField(blank=True, help_text="Most one free job may ask; empty = total.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["free_tier", "resource"], name="free_resource_once_per_tier"),
            models.CheckConstraint(
                name="free_resource_min_max_total_ordered",
                condition=Q(min__lte=F("max"), max__lte=F("total")),
                violation_error_message="0 <= min <= max <= total must hold for the free tier too.",
            ),
        ]

    def __str__(self) -> str:
        return f"free {self.resource}"

    def clean(self) -> None:
        """0 <= min <= max <= total <= the resource's total; an empty `max` becomes `total`. Raises ValidationError."""
        if self.max is None:
            self.max = self.total
        errors = amount_errors(self)
        if not errors and type(self.total) is int and self.total > self.resource.total:
            errors["total"] = (
                f"{self.total} is more than the resource's total of {self.resource.total}; lower it."
            )
        if self.resource.environment_id != self.free_tier.environment_id:
            errors["resource"] = f"{self.free_tier.environment} has no such resource."
        if errors:
            raise ValidationError(errors)
