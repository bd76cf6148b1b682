"""Who may use an environment, and how the site knows whose wallet is whose."""

import re

from django.conf import settings
from django.contrib.postgres.constraints import ExclusionConstraint
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Func, Q
from django.db.models.functions import Lower

from compute_site.core.db import in_list
from compute_site.core.models import in_lower_case
from environments.models.environment import Environment
from environments.models.reservation import Tier

CHAIN = RegexValidator(r"^[0-9]{1,20}\Z", "A chain id is a number.")
LIST_NAME = re.compile(r"(?:[0-9]{1,20}:[^\s:]+|[^\s:]+)\Z")
NO_LIST = "Found “{}”; write chain:contract, or a name of your own."

OF_ANOTHER = "This wallet is written for another user; take it out there."
THERE_ALREADY = "This wallet address stands here already, for this chain or for any."
# Ranges, which one exclusion can compare: a point for an address (by its hash of 64 bits, since there are no ranges of
# text), and all that there is for “any chain”.
POINT = Func(
    "address", template="hashtextextended(%(expressions)s, 0)::numeric", output_field=models.TextField()
)
END = Func("chain", template="nullif(%(expressions)s, '')::numeric", output_field=models.TextField())
RANGE = "numrange(%(expressions)s, '[]')"
ADDRESS = Func(POINT, POINT, template=RANGE, output_field=models.TextField())
CHAINS = Func(END, END, template=RANGE, output_field=models.TextField())


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
        help_text="A user name, a group name, a wallet address (those of users are under “Wallet addresses”), or the"
        " name of an access list, such as chain:contract. What names nobody closes the tier all the same.",
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
                condition=~Q(value=""),
                violation_error_message="An access rule names somebody.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tier}: {self.kind} {self.value}"

    def clean(self) -> None:
        """Addresses and lists are kept in lower case: they mean the same. Raises ValidationError with fields."""
        self.value = self.value.strip()
        if self.kind in WITHOUT_CASE:
            in_lower_case(self, "value")
        if not self.value:
            raise ValidationError({"value": "Enter whom the rule lets in."})
        if self.kind == AccessKind.ACCESS_LIST and not LIST_NAME.match(self.value):
            raise ValidationError({"value": NO_LIST.format(self.value)})


class WalletAddress(models.Model):
    """A wallet that an operator says is this user's; kept in lower case, since addresses are compared without case."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="wallet_addresses",
        help_text="Whose wallet it is. You vouch for that: the site does not ask the user to prove it.",
    )
    chain = models.CharField(
        max_length=20,
        blank=True,
        validators=[CHAIN],
        help_text="Chain id, when the wallet is the user's there alone; empty = on any chain.",
    )
    address = models.CharField(max_length=255, help_text="Capital and small letters mean the same.")

    class Meta:
        ordering = ["address", "chain"]
        verbose_name_plural = "wallet addresses"
        constraints = [
            models.CheckConstraint(
                name="wallet_address_lower_case",
                condition=~Q(address="") & Q(address=Lower("address")),
                violation_error_message="A wallet address is kept in lower case.",
            ),
            models.CheckConstraint(
                name="wallet_address_chain_is_a_number",
                condition=Q(chain__regex=r"^[0-9]{0,20}$"),
                violation_error_message="A chain id is a number.",
            ),
            ExclusionConstraint(
                name="wallet_address_once_where_chains_meet",
                expressions=[(ADDRESS, "&&"), (CHAINS, "&&")],
                violation_error_message=THERE_ALREADY,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.chain or 'any chain'} {self.address}"

    def clean(self) -> None:
        """In lower case; it stands here once, wherever its chains meet. Raises ValidationError with fields."""
        in_lower_case(self, "address")
        if self.chain.isascii() and self.chain.isdecimal():
            self.chain = str(int(self.chain))
        if not self.address:
            raise ValidationError({"address": "Enter the wallet's address."})
        others = WalletAddress.objects.filter(address=self.address).exclude(pk=self.pk)
        if self.chain:
            others = others.filter(chain__in=("", self.chain))
        users = set(others.values_list("user", flat=True))
        if users:
            raise ValidationError({"address": OF_ANOTHER if users - {self.user_id} else THERE_ALREADY})


class AccessList(models.Model):
    """A list that access rules name: either of this site, or the chain:contract of a list as configurations name it."""

    name = models.CharField(
        max_length=255,
        unique=True,
        help_text="chain:contract as access rules name it, or a name of your own without spaces and colons. What the"
        " contract says is not read: the entries below count.",
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="access_list_lower_case",
                condition=~Q(name="") & Q(name=Lower("name")),
                violation_error_message="The name of an access list is kept in lower case.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """In lower case. Raises ValidationError for what is no name."""
        in_lower_case(self, "name")
        if not LIST_NAME.match(self.name):
            raise ValidationError({"name": NO_LIST.format(self.name)})


class AccessListEntry(models.Model):
    """One wallet or one user on a list. A wallet counts when it is one of the user's wallet addresses."""

    access_list = models.ForeignKey(AccessList, on_delete=models.CASCADE, related_name="entries")
    address = models.CharField(max_length=255, blank=True, help_text="A wallet address, or choose a user.")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="A user, in place of an address.",
    )

    class Meta:
        ordering = ["pk"]
        verbose_name = "entry"
        verbose_name_plural = "entries"
        constraints = [
            models.UniqueConstraint(
                fields=["access_list", "address", "user"],
                name="access_list_entry_once",
                nulls_distinct=False,
                violation_error_message="This stands on the list already.",
            ),
            models.CheckConstraint(
                name="access_list_entry_address_or_user",
                condition=Q(address="", user__isnull=False) | (~Q(address="") & Q(user__isnull=True)),
                violation_error_message="Enter a wallet address or choose a user; one of them.",
            ),
            models.CheckConstraint(
                name="access_list_entry_lower_case",
                condition=Q(address=Lower("address")),
                violation_error_message="A wallet address is kept in lower case.",
            ),
        ]

    def __str__(self) -> str:
        return self.address or str(self.user)

    def clean(self) -> None:
        """Addresses in lower case. Raises ValidationError with fields."""
        in_lower_case(self, "address")
