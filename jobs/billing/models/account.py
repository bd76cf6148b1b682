"""Who jobs and money belong to. Every job belongs to an account; people act through memberships."""

from django.conf import settings
from django.db import models

from compute_site.core.db import in_list
from compute_site.core.models import PublicModel


class Account(PublicModel):
    """What jobs and money belong to. Its row is the lock for quotas."""

    name = models.CharField(max_length=150, unique=True, help_text="Unique name, e.g. of a person or a team.")
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True, help_text="A closed account admits no new jobs.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner", "owner"
    MEMBER = "member", "member"


class Membership(models.Model):
    """A user's place in an account."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(
        max_length=16, choices=Role, default=Role.MEMBER, help_text="Owners manage the account."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "user"], name="membership_once"),
            models.CheckConstraint(name="membership_role_known", condition=in_list("role", Role.values)),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.account}"
