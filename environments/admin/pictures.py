"""Small pictures that read as text too: who has which core and device, how full something is, how long phases took."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from compute_site.core.showing import DASH, link, mib, table
from environments.cpuset import format_cores
from environments.models import Host, ResourceKind
from environments.use import Place, ResourceUse, core_map, device_map

NARROWEST = 1.5  # per cent: a part of a strip that can be seen


def cores_picture(host: Host) -> SafeString:
    """A tile for each core, the same in words, and what the colours mean."""
    return cores_of(core_map(host))


def cores_of(places: Sequence[Place]) -> SafeString:
    """The same for a map that was read already."""
    owners: dict[str, list[int]] = defaultdict(list)
    for place in places:
        owners[", ".join(place.environments) or "nobody"].append(int(place.name))
    words = "; ".join(f"{owner}: {format_cores(cores)}" for owner, cores in owners.items())
    return format_html(
        '<div class="cs-tiles">{}</div><div class="cs-note">{}</div>',
        _tiles(places),
        words or "no cores yet: detect the host",
    )


def owners_picture(host: Host, mine: str) -> SafeString:
    """The cores by who has them: `mine` first, other environments by name, nobody last; a tile that is held links to
    its job."""
    owners: dict[str, list[Place]] = {mine: []}
    for place in core_map(host):
        owners.setdefault(", ".join(place.environments), []).append(place)
    nobody = owners.pop("", [])
    rows = [
        ("this environment" if name == mine else name, places, _held(places))
        for name, places in owners.items()
    ]
    rows += [("nobody", nobody, "free to take")] if nobody else []
    cells = ((name, _tiles(places) or DASH, note) for name, places, note in rows)
    return format_html(
        '<div class="cs-owners">{}</div>{}',
        format_html_join(
            "",
            '<span class="cs-name">{}</span><div><div class="cs-tiles">{}</div><div class="cs-note">{}</div></div>',
            cells,
        ),
        legend(),
    )


def _held(places: Sequence[Place]) -> str:
    held = sum(place.holder is not None for place in places)
    return f"{format_cores(int(place.name) for place in places) or 'none'}: {held} held by jobs, {len(places) - held} free"


def devices_table(host: Host, mine: str) -> SafeString | str:
    """The devices of the host: what each is, who offers it, and which job holds it."""
    there = {device.uuid: device for device in host.devices.all()}
    rows = [
        (
            link(there[place.name], place.name),
            there[place.name].model or DASH,
            mib(there[place.name].memory_mib) if there[place.name].memory_mib else DASH,
            there[place.name].health,
            ", ".join("this environment" if name == mine else name for name in place.environments)
            or "nobody",
            _job(place),
        )
        for place in device_map(host)
        if place.name in there
    ]
    head = ("device", "model", "memory", "health", "offered by", "held by")
    note = '<p class="cs-note">{}</p>'
    return format_html(
        "{}" + note,
        table(head, rows) if rows else "The host has no devices: detect it, or enter them.",
        "Which of them a resource hands out is chosen with the resource.",
    )


def _job(place: Place) -> SafeString | str:
    if place.holder is None:
        return "free" if place.healthy else DASH
    page = reverse("admin:jobs_job_of_attempt", args=[place.holder])
    return format_html('<a class="cs-link" href="{}">a job</a>', page)


def devices_picture(host: Host) -> SafeString:
    """A tile for each device."""
    return devices_of(device_map(host))


def devices_of(places: Sequence[Place]) -> SafeString:
    """The same for a map that was read already."""
    return format_html('<div class="cs-tiles">{}</div>', _tiles(places) or "none")


def legend() -> SafeString:
    """What the colours of tiles mean."""
    parts = (("held", "held by a job"), ("offered", "free"), ("nobody", "nobody's"), ("ill", "unhealthy"))
    # Each stays with its word where the line is narrow.
    pair = '<span class="cs-pair"><span class="cs-tile cs-{}">&nbsp;</span> {}</span>'
    tiles = format_html_join(" ", pair, parts)
    return format_html('<div class="cs-note cs-legend">{}</div>', tiles)


def _tiles(places: Iterable[Place]) -> SafeString:
    return format_html_join("", "{}", ((_tile(place),) for place in places))


def _tile(place: Place) -> SafeString:
    words = [place.name, ", ".join(place.environments) or "nobody's"]
    words += [f"slot of worker {worker}" for worker in place.workers]
    look = "offered" if place.environments else "nobody"
    if not place.healthy:
        words.append("unhealthy")
        look = "ill"
    if place.holder is None:
        return format_html(
            '<span class="cs-tile cs-{}" title="{}">{}</span>', look, " · ".join(words), place.name[-8:]
        )
    words.append(f"held by attempt {place.holder.hex[-8:]}")
    return format_html(
        '<a class="cs-tile cs-held" href="{}" title="{}">{}</a>',
        reverse("admin:jobs_job_of_attempt", args=[place.holder]),
        " · ".join(words),
        place.name[-8:],
    )


def bar(part: float, whole: float, text: str) -> SafeString:
    """How much of `whole` is taken, with words beside it; full is orange."""
    share = 0.0 if whole <= 0 else min(100.0, 100 * part / whole)
    return format_html(
        '<span class="cs-bar" title="{0} %"><span class="{1}" style="width:{0}%"></span></span>'
        '<span class="cs-bar-text">{2}</span>',
        f"{share:.0f}",
        "cs-full" if share >= 99.5 else "cs-part",
        text,
    )


def use_bars(uses: Iterable[ResourceUse]) -> SafeString:
    """A bar for each resource of an environment: what jobs hold of what is offered."""
    rows = ((use.slug, bar(use.used, use.offered, _use_text(use))) for use in uses)
    return format_html(
        '<div class="cs-bars">{}</div>', format_html_join("", '<span class="cs-name">{}</span>{}', rows)
    )


def _use_text(use: ResourceUse) -> str:
    if use.kind in (ResourceKind.RAM, ResourceKind.DISK):
        return f"{mib(use.used)} of {mib(use.offered)}"
    return f"{use.used} of {use.offered}"


def strip(parts: Sequence[tuple[str, float]]) -> SafeString | str:
    """Phases side by side, as wide as they lasted: (name, seconds)."""
    whole = sum(seconds for _, seconds in parts)
    if whole <= 0:
        return ""
    cells = (
        (name, f"{max(NARROWEST, 100 * seconds / whole):.1f}", f"{name}: {seconds:.2f} s", name)
        for name, seconds in parts
        if seconds > 0
    )
    return format_html(
        '<div class="cs-strip">{}</div>',
        format_html_join("", '<span class="cs-{}" style="flex:{}" title="{}">{}</span>', cells),
    )


def columns(bars: Sequence[tuple[str, int, int]]) -> SafeString:
    """A column for each (title, good, bad): counts, bad ones on top in red, scaled to the highest."""
    highest = max((good + bad for _, good, bad in bars), default=0) or 1
    cells = (
        (f"{title}: {good + bad}, {bad} failed", f"{100 * bad / highest:.1f}", f"{100 * good / highest:.1f}")
        for title, good, bad in bars
    )
    return format_html(
        '<div class="cs-columns">{}</div>',
        format_html_join(
            "",
            '<span title="{}"><i class="cs-bad" style="height:{}%"></i>'
            '<i class="cs-good" style="height:{}%"></i></span>',
            cells,
        ),
    )
