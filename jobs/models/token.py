"""Tokens of the API: knox's, with a name for their owner and the scopes that they were made with."""

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from knox.models import AbstractAuthToken

from compute_site.core.scopes import Scope, usual_scopes


class Token(AbstractAuthToken):
    """Whoever has it acts as its user, on the routes of its scopes. Hashed at rest; its scopes never change."""

    name = models.CharField(max_length=100, blank=True, help_text="What it is for, in its owner's words.")
    scopes = ArrayField(
        models.CharField(max_length=16),
        default=usual_scopes,
        blank=True,
        help_text="What it may be used for: read, submit, admin, fleet; one of them at least.",
    )

    class Meta:
        ordering = ["-created", "pk"]
        constraints = [
            models.CheckConstraint(
                name="token_scopes_known",
                condition=Q(scopes__contained_by=sorted(Scope.values), scopes__len__gte=1),
                violation_error_message="A token has one scope at least, of read, submit, admin, fleet.",
            )
        ]

    def __str__(self) -> str:
        return self.name or f"{self.token_key}…"

    def clean(self) -> None:
        """Raises ValidationError with what is no scope, or when none is named."""
        if not self.scopes:
            raise ValidationError({"scopes": f"Name one at least of {', '.join(Scope.values)}."})
        if unknown := sorted(set(self.scopes) - set(Scope.values)):
            text = f"Found {', '.join(unknown)}; there are only {', '.join(Scope.values)}."
            raise ValidationError({"scopes": text})
