"""Base models: public ids beside bigint keys."""

import uuid
from typing import TypeVar

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



def save_clean(instance: Model) -> Model:
    """`full_clean()` then save: the way in for every door that is not a form. Raises ValidationError with fields."""
    instance.full_clean()
    instance.save()
    return instance
