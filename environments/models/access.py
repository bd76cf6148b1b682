"""Who may use an environment."""

from django.core.exceptions import ValidationError
from django.db import models

from compute_site.core.db import in_list
from environments.models.environment import Environment
from environments.models.reservation import Tier


class AccessKind(models.TextChoices):
    USER = "user", "user"
    GROUP = "group", "group"
    ADDRESS = "address", "wallet address"
    ACCESS_LIST = "access_list", "access list"


WITHOUT_CASE = (AccessKind.ADDRESS, AccessKind.ACCESS_LIST)


class AccessRule(models.Model):
    """Lets somebody use one tier of an environment. No rule = open to all; any rule = closed to all others."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="access_rules")
    tier = models.CharField(max_length=8, choices=Tier, help_text="Which tier it opens: paid or free.")
    kind = models.CharField(max_length=16, choices=AccessKind, help_text="What the value names.")
    value = models.CharField(
        max_length=255,
        help_text="A user name, a group name, a wallet address, or chain:contract of an access list. Nobody proves a"
        " wallet to the site yet, so the last two close the tier without letting anybody in.",
    )

    class Meta:
        ordering = ["environment", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["environment", "tier", "kind", "value"],
                name="access_rule_once",
                violation_error_message="This environment already has this access rule.",
            ),
            models.CheckConstraint(
                name="access_rule_kind_known", condition=in_list("kind", AccessKind.values)
            ),
            models.CheckConstraint(name="access_rule_tier_known", condition=in_list("tier", Tier.values)),
            models.CheckConstraint(
                name="access_rule_value_given",
                condition=~models.Q(value=""),
                violation_error_message="An access rule names somebody.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tier}: {self.kind} {self.value}"

    def clean(self) -> None:
        """Addresses and contracts are kept in lower case: they mean the same. Raises ValidationError with fields."""
        self.value = self.value.strip()
        if self.kind in WITHOUT_CASE:
            self.value = self.value.lower()
        if not self.value:
            raise ValidationError({"value": "Enter whom the rule lets in."})
