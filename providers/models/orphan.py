"""A pod at a provider that carries our name and that no live row knows."""

from django.db import models

from compute_site.core.db import ClockTimestamp
from providers.models.account import ProviderAccount


class Orphan(models.Model):
    """Seen first, then, after a grace time, terminated until its absence is confirmed like any pod's."""

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="orphans")
    provider_id = models.CharField(max_length=200)
    name = models.CharField(max_length=100)
    price_per_hour = models.DecimalField(max_digits=38, decimal_places=18, null=True)
    first_seen_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    terminate_calls = models.PositiveIntegerField(default=0)
    absent_answers = models.PositiveSmallIntegerField(default=0)
    gone_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "provider_id"],
                condition=models.Q(gone_at__isnull=True),
                name="orphan_once_while_there",
            )
        ]

    def __str__(self) -> str:
        return self.name or self.provider_id
