"""Owners, their keys, and the remote workers that they answer for."""

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, in_list
from compute_site.core.models import PublicModel
from jobs.billing.models import Account
from workers.fleet.signing import BadKey, read_key


class Owner(PublicModel):
    """Who answers for remote workers: an account with one or more public keys."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, related_name="fleet_owner")
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return str(self.account)


class OwnerKey(models.Model):
    """A public key of an owner, `ed25519:<base64>`. A revoked one signs nothing any more."""

    owner = models.ForeignKey(Owner, on_delete=models.PROTECT, related_name="keys")
    key = models.CharField(max_length=80, unique=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.key

    def clean(self) -> None:
        """The key is one that signatures can be checked with."""
        try:
            read_key(self.key)
        except BadKey as error:
            text = f"This is no public key: {error}. Write ed25519: and the 32 bytes in base64."
            raise ValidationError({"key": text}) from error


class Binding(models.Model):
    """An owner's signed statement that a worker key is theirs; reusable until it expires or is revoked."""

    owner_key = models.ForeignKey(OwnerKey, on_delete=models.PROTECT, related_name="bindings")
    worker_key = models.CharField(max_length=80)
    serial = models.CharField(max_length=64)
    statement = models.JSONField(help_text="As signed.")
    signature = models.CharField(max_length=128)
    not_after = models.DateTimeField()
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["owner_key", "worker_key", "serial"], name="fleet_binding_once")
        ]

    def __str__(self) -> str:
        return f"{self.worker_key} #{self.serial}"


class RemoteStatus(models.TextChoices):
    PENDING = "pending", "pending"
    ACTIVE = "active", "active"
    STALE = "stale", "stale"
    RETIRED = "retired", "retired"


S = RemoteStatus
TRANSITIONS: dict[str, frozenset[str]] = {
    S.PENDING: frozenset({S.ACTIVE, S.RETIRED}),
    S.ACTIVE: frozenset({S.STALE, S.RETIRED}),
    S.STALE: frozenset({S.ACTIVE, S.RETIRED}),
    S.RETIRED: frozenset(),
}


class RemoteWorker(PublicModel):
    """One agent process of an owner, with one key. A key bound to one owner is never bound to another.

    | from | to | by |
    |---|---|---|
    | pending | active | its first heartbeat |
    | active | stale | no heartbeat for the TTL, by the database's clock |
    | stale | active | a heartbeat |
    | pending, active, stale | retired | its owner or an administrator; for ever |
    """

    owner = models.ForeignKey(Owner, on_delete=models.PROTECT, related_name="workers")
    key = models.CharField(max_length=80, unique=True)
    binding = models.ForeignKey(Binding, on_delete=models.PROTECT, related_name="+")
    status = models.CharField(max_length=16, choices=RemoteStatus, default=RemoteStatus.PENDING)
    capabilities = models.JSONField(
        default=dict, help_text="By kind of resource: cores, MiB, devices; also slots."
    )
    slots = models.PositiveSmallIntegerField(default=1, help_text="Replicas that it runs at once.")
    provider = models.CharField(max_length=64, blank=True)
    instance = models.CharField(max_length=128, blank=True, help_text="The provider's reference, if rented.")
    version = models.CharField(max_length=64, blank=True)
    health = models.JSONField(
        default=dict, blank=True, help_text="What is wrong with its machine, by its own word."
    )
    devices = models.JSONField(
        default=list, blank=True, help_text="As NVML reports them there: UUID, model, memory in MiB, driver."
    )
    registered_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    heartbeat_at = models.DateTimeField(null=True)
    retired_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                name="fleet_worker_status_known", condition=in_list("status", RemoteStatus.values)
            ),
            models.CheckConstraint(name="fleet_worker_has_slots", condition=Q(slots__gte=1)),
            models.CheckConstraint(
                name="fleet_worker_retired_exactly_when_retired",
                condition=Q(status="retired", retired_at__isnull=False)
                | ~Q(status="retired") & Q(retired_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.short_id


class Nonce(models.Model):
    """A nonce that a key has used; kept longer than a request may be late."""

    key = models.CharField(max_length=80)
    value = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "value"], name="fleet_nonce_once")]

    def __str__(self) -> str:
        return self.value
