"""The history of environments: one row for each edit, with everything the environment was after it."""

from django.db import models

from compute_site.core.db import ClockTimestamp, in_list
from environments.models.environment import Environment, EnvironmentState


class Door(models.TextChoices):
    PAGE = "page", "edited on its page"
    BUTTON = "button", "by a button"
    IMPORT = "import", "by an import"
    REVERT = "revert", "reverted"
    CODE = "code", "by the site itself"
    FOUND = "found", "found so, not by an edit"


class Edit(models.Model):
    """One edit of an environment: who, when, why, and the whole of it afterwards.

    Written in the edit's own transaction under the environment's lock, and never changed. What an edit changed is the
    difference to the row before it.
    """

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="edits")
    made_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    by = models.CharField(max_length=150, blank=True, help_text="User name; empty = the site itself.")
    door = models.CharField(max_length=8, choices=Door)
    comment = models.TextField(blank=True, help_text="Why, in the words of who did it.")
    slug = models.CharField(max_length=63, help_text="Its name afterwards.")
    state = models.CharField(max_length=16, choices=EnvironmentState, help_text="Its state afterwards.")
    configuration = models.TextField(
        help_text="All the rest afterwards, as an export writes it: JSON text, in which no digit of a price is lost."
    )

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(name="edit_door_known", condition=in_list("door", Door.values)),
            models.CheckConstraint(
                name="edit_state_known", condition=in_list("state", EnvironmentState.values)
            ),
        ]

    def __str__(self) -> str:
        return f"edit {self.pk} of {self.slug}"
