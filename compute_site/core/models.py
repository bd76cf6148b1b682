"""Base models: public ids beside bigint keys."""

import uuid
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from uuid_utils.compat import uuid7

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
        """As Django's, but refuses text, booleans and fractions where a number belongs, naming what was found."""
        errors: dict[str, str] = {}
        for field in self._meta.concrete_fields:
            value = getattr(self, field.attname)
            if field.name in (exclude or ()) or value is None or value == "":
                continue
            if isinstance(field, models.IntegerField) and type(value) is not int:
                errors[field.name] = f"Found {value!r}; enter a whole number."
            elif isinstance(field, models.DecimalField) and type(value) not in (int, Decimal):
                errors[field.name] = f"Found {value!r}; enter a decimal number."
        if errors:
            raise ValidationError(errors)
        super().clean_fields(exclude=exclude)


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
