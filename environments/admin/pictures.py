"""Who has which core and device, as small pictures that read as text too."""

from collections import defaultdict

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from environments.cpuset import format_cores
from environments.models import Host
from environments.use import Place, core_map, device_map

TILE = (
    "display:inline-block;min-width:2.2em;margin:2px;padding:2px 6px;border-radius:4px;text-align:center;"
    "border:1px solid currentColor;{}"
)
HELD, OFFERED, NOBODY = "background:#f59e0b;color:#111", "background:#3b82f6;color:#fff", "opacity:.55"


def cores_picture(host: Host) -> SafeString:
    """A tile for each core (orange held by a job, blue offered, pale nobody's), and the same in words."""
    places = core_map(host)
    owners: dict[str, list[int]] = defaultdict(list)
    for place in places:
        owners[", ".join(place.environments) or "nobody"].append(int(place.name))
    words = "; ".join(f"{owner}: {format_cores(cores)}" for owner, cores in owners.items())
    return format_html("<div>{}</div><div>{}</div>", _tiles(places), words or "no cores yet: detect the host")


def devices_picture(host: Host) -> SafeString:
    """A tile for each device."""
    return format_html("<div>{}</div>", _tiles(device_map(host)) or "none")


def _tiles(places: list[Place]) -> SafeString:
    return format_html_join(
        "",
        '<span style="{}" title="{}">{}</span>',
        ((TILE.format(_colour(place)), _title(place), place.name[-8:]) for place in places),
    )


def _colour(place: Place) -> str:
    if place.holder:
        return HELD
    return OFFERED if place.environments and place.healthy else NOBODY


def _title(place: Place) -> str:
    words = [place.name, ", ".join(place.environments) or "nobody's"]
    if place.holder:
        words.append(f"held by attempt {str(place.holder)[-8:]}")
    words += [f"slot of worker {worker}" for worker in place.workers]
    if not place.healthy:
        words.append("unhealthy")
    return " · ".join(words)
