"""An account at a provider, with its budgets."""

from decimal import Decimal
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import EditedModel
from providers import keys


class ProviderKind(models.TextChoices):
    LIUM = "lium", "Lium"
    TARGON = "targon", "Targon"


def check_address(value: str) -> None:
    """https, or plain http on this machine only: the key travels there."""
    try:
        parts = urlsplit(value)
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        parts, local = urlsplit(""), False
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if not (plain and parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and local))):
        raise ValidationError("Enter an https address without user, query or fragment.")


class ProviderAccount(EditedModel):
    """Whose money is spent, and how much of it may be. Its row is the lock for its budgets.

    The key is sealed (`providers.keys`) for this row alone and leaves it only into the header of a call.
    """

    name = models.CharField(max_length=100, unique=True, help_text="Unique name of the account.")
    kind = models.CharField(max_length=16, choices=ProviderKind)
    base_url = models.CharField(
        max_length=300,
        blank=True,
        validators=[check_address],
        help_text="Where its API is; empty = the provider's own address.",
    )
    sealed_key = models.TextField(blank=True, editable=False)
    enabled = models.BooleanField(
        default=True, help_text="Off: nothing new is rented and every pod of the account is terminated."
    )
    daily_cap = models.DecimalField(
        max_digits=38,
        decimal_places=18,
        validators=[MinValueValidator(Decimal(0))],
        help_text="USD that pods may commit in a UTC day.",
    )
    monthly_cap = models.DecimalField(
        max_digits=38,
        decimal_places=18,
        validators=[MinValueValidator(Decimal(0))],
        help_text="The same for a UTC month.",
    )
    max_pods = models.PositiveIntegerField(default=1, help_text="Pods that may live at once.")
    accepts_no_provider_clock = models.BooleanField(
        default=False,
        verbose_name="rent without the provider's own clock",
        help_text="Needed for a provider that ends nothing by itself: only this site then bounds a pod's life.",
    )
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    listed_at = models.DateTimeField(
        null=True, editable=False, help_text="The last good listing of its pods."
    )
    trouble = models.CharField(
        max_length=500, blank=True, editable=False, help_text="Why the last look failed, if it did."
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="provideraccount_kind_known", condition=in_list("kind", ProviderKind.values)
            ),
            models.CheckConstraint(
                name="provideraccount_caps_not_negative", condition=Q(daily_cap__gte=0, monthly_cap__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def has_key(self) -> bool:
        return bool(self.sealed_key)

    def set_key(self, key: str) -> None:
        """Seal and store the key of a saved account. Raises ValidationError for what cannot be a key."""
        if not (key.isascii() and key.isprintable() and 8 <= len(key) <= 1000 and " " not in key):
            raise ValidationError({"key": "8 to 1000 printable characters without spaces."})
        self.sealed_key = keys.seal(key, self._place())
        type(self)._default_manager.filter(pk=self.pk).update(sealed_key=self.sealed_key)

    def open_key(self) -> str:
        """The key, for the header of a call. Raises KeyUnreadable."""
        return keys.unseal(self.sealed_key, self._place())

    def _place(self) -> str:
        if self.pk is None:
            raise ValueError("a key is sealed for a saved row only")
        return f"{self._meta.db_table}:{self.pk}:sealed_key"
