"""The rules on the devices of an environment that no single row can check."""

from collections import defaultdict
from collections.abc import Iterator

from environments.models import (
    NVIDIA,
    Device,
    Environment,
    EnvironmentState,
    InitKind,
    ResourceDevice,
    ResourceKind,
    Sharing,
)
from environments.use import ResourceUse

Found = Iterator[tuple[str, str]]


def wrong_devices(environment: Environment, uses: list[ResourceUse]) -> Found:
    """A device resource is exactly its devices; an exclusive one shares none of them with another environment, but for
    one that measures the host."""
    mine: dict[int, list[ResourceDevice]] = defaultdict(list)
    for row in ResourceDevice.objects.filter(environment=environment).select_related("device__host"):
        mine[row.resource_id].append(row)
    for use in uses:
        rows = mine[use.resource_id]
        if use.kind != ResourceKind.DEVICE:
            if rows:
                yield (
                    f"resources.{use.slug}.devices",
                    f"{use.slug} is of kind {use.kind}; devices belong to kind device.",
                )
            continue
        if use.total != len(rows):
            yield (
                f"resources.{use.slug}.total",
                f"The total is {use.total}, but {len(rows)} devices are chosen; make both the same.",
            )
        for row in rows:
            if row.device.host_id != use.host_id:
                yield (
                    f"resources.{use.slug}.devices",
                    f"{row.device} is on host {row.device.host}; take it out.",
                )
            if not environment.benchmark and (told := no_file(row.device)):
                yield f"resources.{use.slug}.devices", told
    if not environment.benchmark:
        yield from _exclusive_devices(environment, uses)


def no_file(device: Device) -> str:
    """Why no job would have the device inside, though it pays for it; empty when it would."""
    if device.platform == NVIDIA or device.init.filter(kind=InitKind.PATH).exists():
        return ""
    return f"{device.uuid} is of platform {device.platform}, and no device file is entered in its init: enter one."


def _exclusive_devices(environment: Environment, uses: list[ResourceUse]) -> Found:
    slugs = {use.resource_id: use for use in uses}
    others = ResourceDevice.objects.filter(device__resource_devices__environment=environment)
    others = others.exclude(environment=environment).exclude(environment__state=EnvironmentState.RETIRED)
    others = others.exclude(environment__benchmark=True)
    mine = dict(
        ResourceDevice.objects.filter(environment=environment).values_list("device_id", "resource_id")
    )
    for other in others.select_related("resource", "device", "environment__engine").distinct():
        use = slugs[mine[other.device_id]]
        if Sharing.EXCLUSIVE in (use.sharing, other.resource.sharing):
            yield (
                f"resources.{use.slug}.devices",
                f"{other.device} is in {other.environment} too; make both resources shared, or take it out of one.",
            )
