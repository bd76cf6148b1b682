"""Reservations, to look at: the running site owns them."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from compute_site.core.admin import ReadOnlyAdmin
from environments.cpuset import format_cores
from environments.models import Reservation


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Who holds what, newest first."""

    list_display = (
        "attempt",
        "environment",
        "tier",
        "status",
        "cores",
        "amounts_held",
        "uid",
        "created_at",
        "released_at",
    )
    list_filter = ("status", "tier", "host")
    ordering = ("-pk",)
    list_per_page = 50
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reservation]:
        """With everything a row shows, in a fixed number of statements."""
        rows = super().get_queryset(request).select_related("environment__engine", "host")
        return rows.prefetch_related("reserved_cores__core", "amounts__resource")

    @admin.display(description="attempt")
    def attempt(self, reservation: Reservation) -> str:
        """The last eight characters of the attempt's id."""
        return reservation.holder.hex[-8:]

    @admin.display(description="cores held")
    def cores(self, reservation: Reservation) -> str:
        """Cores that are held still."""
        return (
            format_cores(
                row.core.index for row in reservation.reserved_cores.all() if row.released_at is None
            )
            or "-"
        )

    @admin.display(description="amounts held")
    def amounts_held(self, reservation: Reservation) -> str:
        """Amounts that are held still."""
        live = [row for row in reservation.amounts.all() if row.released_at is None]
        return ", ".join(f"{row.amount} {row.resource.slug}" for row in live) or "-"
