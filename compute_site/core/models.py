"""Base models: public ids beside bigint keys."""

import uuid
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.core.validators import BaseValidator, MaxValueValidator, MinValueValidator
from django.db import models
from uuid_utils.compat import uuid7

from compute_site.core.numbers import decimal_error, whole_error

Model = TypeVar("Model", bound=models.Model)


def new_public_id() -> uuid.UUID:
    """A UUIDv7: sortable by creation; the random end is what people are shown."""
    return uuid7()


class PublicModel(models.Model):
    """A bigint primary key inside, a UUIDv7 outside."""

    public_id = models.UUIDField(
        default=new_public_id, unique=True, editable=False, help_text="The id that clients see (UUIDv7)."
    )

    class Meta:
        abstract = True

    @property
    def short_id(self) -> str:
        """The last eight characters of the public id: enough to tell two rows apart at a glance."""
        return self.public_id.hex[-8:]


class StrictNumbers(models.Model):
    """Numbers must be numbers: Django alone would read "4", True and 1.9 as whole numbers without a word."""

    class Meta:
        abstract = True

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """As Django's, but a number that is none, or out of bounds, is told in the words of every door."""
        errors: dict[str, str] = {}
        for field in self._meta.concrete_fields:
            value = getattr(self, field.attname)
            if field.name in (exclude or ()) or value is None or value == "":
                continue
            if error := number_error(field, value):
                errors[field.name] = error
        if errors:
            raise ValidationError(errors)
        super().clean_fields(exclude=exclude)


def number_error(field: "models.Field[Any, Any]", value: object) -> str:
    """What is wrong with a number for this field, within its own bounds; empty when nothing is, or it holds none."""
    least = max(_limits(field, MinValueValidator), default=None)
    most = min(_limits(field, MaxValueValidator), default=None)
    if isinstance(field, models.IntegerField):
        return whole_error(value, least, most)
    if isinstance(field, models.DecimalField):
        return decimal_error(value, least, field.max_digits or 0, field.decimal_places or 0)
    return ""


def _limits(field: "models.Field[Any, Any]", kind: type[BaseValidator]) -> list[int]:
    return [int(one.limit_value) for one in field.validators if isinstance(one, kind)]


def in_lower_case(row: models.Model, name: str) -> None:
    """Without spaces around it and in lower case, which has more letters than there were in some alphabets.

    Raises ValidationError with the field where they are too many now.
    """
    field: Any = row._meta.get_field(name)
    before = getattr(row, name)
    after = before.strip().lower()
    setattr(row, name, after)
    if len(before) <= field.max_length < len(after):
        try:
            field.run_validators(after)
        except ValidationError as error:
            raise ValidationError({name: error.messages}) from error


class EditedModel(StrictNumbers, PublicModel):
    """What operators edit: every edit raises `version`, and a form that was opened before it is refused."""

    version = models.PositiveIntegerField(default=1, editable=False, help_text="Grows with each edit.")

    class Meta:
        abstract = True


def save_changed(instance: Model, fields: Mapping[str, object]) -> Model:
    """The row with these fields, saved if it is new or anything differs. Raises ValidationError with its fields."""
    if instance.pk is not None and all(getattr(instance, name) == value for name, value in fields.items()):
        return instance
    for name, value in fields.items():
        setattr(instance, name, value)
    return save_clean(instance)


def save_clean(instance: Model) -> Model:
    """`full_clean()` then save: the way in for every door that is not a form. Raises ValidationError with fields."""
    instance.full_clean()
    instance.save()
    return instance
