"""What runs in an environment now: each live reservation, what it holds, and since when."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from compute_site.core.showing import DASH, ago, table
from environments.admin.reservation import amounts_held, cores_held, devices_held, job_link
from environments.models import Environment

SHOWN = 100


def jobs_now(environment: Environment) -> SafeString | str:
    """Oldest first."""
    live = environment.reservations.filter(released_at=None).order_by("pk")
    rows = list(
        live.prefetch_related("reserved_cores__core", "reserved_devices__device", "amounts__resource")[:SHOWN]
    )
    if not rows:
        return "No job holds anything here now."
    told = [
        (
            job_link(row),
            row.tier,
            row.status if row.exited_at is None else "cleaning up",
            cores_held(row) or DASH,
            devices_held(row) or DASH,
            amounts_held(row) or DASH,
            ago(row.created_at),
        )
        for row in rows
    ]
    rest = live.count() - len(rows)
    head = ("job", "tier", "state", "cores", "devices", "holds", "since")
    more = format_html('<p class="cs-note">and {} more</p>', rest) if rest else ""
    return format_html("{}{}", table(head, told), more)
