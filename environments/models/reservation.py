"""What is in use: one reservation per attempt, and its children, each released on its own."""

from django.db import models
from django.db.models import Q

from compute_site.core.db import ClockTimestamp, in_list
from environments.models.environment import Environment
from environments.models.host import Core, Device, Host
from environments.models.resource import Resource, ResourceKind


class Tier(models.TextChoices):
    PAID = "paid", "paid"
    FREE = "free", "free"


class ReservationStatus(models.TextChoices):
    HELD = "held", "held"
    REVOKED = "revoked", "revoked"
    RELEASED = "released", "released"


LIVE = Q(released_at__isnull=True)
TRANSITIONS = {
    ReservationStatus.HELD: frozenset({ReservationStatus.REVOKED, ReservationStatus.RELEASED}),
    ReservationStatus.REVOKED: frozenset({ReservationStatus.RELEASED}),
    ReservationStatus.RELEASED: frozenset[str](),
}


class Reservation(models.Model):
    """The claim of one attempt on a host. Made and released only under the host's row lock.

    held → released, or held → revoked → released. Revoked: the job may move on, the physical things stay claimed
    until their container is confirmed gone. Cores, devices and memory are released at the confirmed exit, disk and
    uid at clean-up; the reservation is released with the last of them.
    """

    holder = models.UUIDField(editable=False, help_text="The attempt that holds it; opaque here.")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="reservations")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="reservations")
    tier = models.CharField(max_length=8, choices=Tier)
    status = models.CharField(max_length=16, choices=ReservationStatus, default=ReservationStatus.HELD)
    uid = models.PositiveBigIntegerField(
        help_text="The numeric user of its container; nobody else's on the host while live."
    )
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    exited_at = models.DateTimeField(
        null=True, editable=False, help_text="When cores, devices and memory were released."
    )
    released_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["holder"], name="reservation_once_per_attempt"),
            models.UniqueConstraint(fields=["host", "uid"], condition=LIVE, name="reservation_uid_once_live"),
            models.CheckConstraint(
                name="reservation_status_known", condition=in_list("status", ReservationStatus.values)
            ),
            models.CheckConstraint(name="reservation_tier_known", condition=in_list("tier", Tier.values)),
            models.CheckConstraint(
                name="reservation_released_exactly_when_released",
                condition=Q(status=ReservationStatus.RELEASED, released_at__isnull=False)
                | (~Q(status=ReservationStatus.RELEASED) & LIVE),
            ),
        ]
        indexes = [models.Index(fields=["environment", "tier"], condition=LIVE, name="reservation_live")]

    def __str__(self) -> str:
        return f"reservation of {self.holder}"


class ReservedAmount(models.Model):
    """How much of one resource a reservation holds (cores, MiB, devices, counts).

    Host, kind and tier are repeated, so that both sums (environment and host) are one index scan over live rows.
    """

    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="amounts")
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="reserved")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=16, choices=ResourceKind)
    tier = models.CharField(max_length=8, choices=Tier)
    amount = models.PositiveBigIntegerField()
    released_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["reservation", "resource"], name="reserved_amount_once"),
            models.CheckConstraint(name="reserved_amount_not_negative", condition=Q(amount__gte=0)),
        ]
        indexes = [
            models.Index(
                fields=["resource"],
                include=["amount", "tier"],
                condition=LIVE,
                name="reserved_live_by_resource",
            ),
            models.Index(
                fields=["host", "kind"], include=["amount"], condition=LIVE, name="reserved_live_by_host"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} {self.resource}"


class ReservedCore(models.Model):
    """One core held by one live reservation at most: PostgreSQL refuses a second."""

    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="reserved_cores")
    core = models.ForeignKey(Core, on_delete=models.PROTECT, related_name="reserved")
    released_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["core"], condition=LIVE, name="core_once_live")]

    def __str__(self) -> str:
        return str(self.core)


class ReservedDevice(models.Model):
    """One device held by one live reservation at most, whatever environment it was asked through."""

    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="reserved_devices")
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="+")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="reserved")
    released_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["device"], condition=LIVE, name="device_once_live")]

    def __str__(self) -> str:
        return str(self.device)
