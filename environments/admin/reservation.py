"""Reservations, to look at: the running site owns them."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from compute_site.core.admin import ReadOnlyAdmin
from compute_site.core.showing import DASH, mib, when
from environments.cpuset import format_cores
from environments.models import Reservation, ReservationStatus, ReservedAmount, ResourceKind

NAMED = (ResourceKind.CPU, ResourceKind.DEVICE)  # told one by one, not as an amount


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Who holds what, newest first."""

    list_display = (
        *("attempt", "environment", "tier", "standing", "cores", "devices", "amounts_held"),
        *(when("created_at", "since"), when("released_at")),
    )
    fields = (
        *("job", "environment", "host", "tier", "standing", "cores", "devices", "amounts_held", "uid"),
        *(when("created_at", "since"), when("exited_at", "cores and memory released"), when("released_at")),
    )
    readonly_fields = fields
    list_filter = ("status", "tier", "host")
    ordering = ("-pk",)
    list_per_page = 50
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reservation]:
        """With everything a row shows, in a fixed number of statements."""
        rows = super().get_queryset(request).select_related("environment__engine", "host")
        return rows.prefetch_related("reserved_cores__core", "reserved_devices__device", "amounts__resource")

    @admin.display(description="attempt")
    def attempt(self, reservation: Reservation) -> str:
        """The last eight characters of the attempt's id."""
        return reservation.holder.hex[-8:]

    @admin.display(description="job")
    def job(self, reservation: Reservation) -> SafeString:
        """A link to the job whose attempt holds it."""
        return job_link(reservation)

    @display(
        description="state",
        ordering="status",
        label={
            ReservationStatus.HELD: "info",
            ReservationStatus.REVOKED: "warning",
            ReservationStatus.RELEASED: "default",
        },
    )
    def standing(self, reservation: Reservation) -> str:
        """held, revoked or released."""
        return reservation.status

    @admin.display(description="devices held")
    def devices(self, reservation: Reservation) -> str:
        """Devices that are held still, by the end of their uuid."""
        return devices_held(reservation) or DASH

    @admin.display(description="cores held")
    def cores(self, reservation: Reservation) -> str:
        """Cores that are held still."""
        return cores_held(reservation) or DASH

    @admin.display(description="amounts held")
    def amounts_held(self, reservation: Reservation) -> str:
        """Amounts that are held still."""
        return amounts_held(reservation) or DASH


def job_link(reservation: Reservation) -> SafeString:
    """To the job whose attempt holds it."""
    page = reverse("admin:jobs_job_of_attempt", args=[reservation.holder])
    return format_html('<a class="cs-link" href="{}">the job of {}</a>', page, reservation.holder.hex[-8:])


def devices_held(reservation: Reservation) -> str:
    """Devices that it holds still, by the end of their uuid; reads prefetched rows."""
    return ", ".join(
        row.device.uuid[-8:] for row in reservation.reserved_devices.all() if row.released_at is None
    )


def cores_held(reservation: Reservation) -> str:
    """Cores that it holds still, in their shortest form."""
    return format_cores(row.core.index for row in reservation.reserved_cores.all() if row.released_at is None)


def amounts_held(reservation: Reservation) -> str:
    """Everything else that it holds still."""
    live = [row for row in reservation.amounts.all() if row.released_at is None]
    return ", ".join(_amount(row) for row in live if row.kind not in NAMED)


def _amount(row: ReservedAmount) -> str:
    if row.kind in (ResourceKind.RAM, ResourceKind.DISK):
        return f"{mib(row.amount)} {row.resource.slug}"
    return f"{row.amount} {row.resource.slug}"
