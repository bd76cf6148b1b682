"""From the path of one of our rules to the path of the value in the file that broke it."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError

from environments.importing.wanted import WantedEngine, WantedEnvironment

NAMES = {
    "slug": "id",
    "storage_expiry": "storageExpiry",
    "min_job_duration": "minJobDuration",
    "max_job_duration": "maxJobDuration",
    "max_jobs": "maxJobs",
    "max_queue_wait": "maxQueueWait",
    "enable_network": "enableNetwork",
    "price_lists": "fees",
    "image_retention_days": "imageRetentionDays",
    "image_cleanup_interval": "imageCleanupInterval",
    "payment_claim_interval": "paymentClaimInterval",
    "scan_policy": "scanPolicy",
    "enable_benchmark": "enableBenchmark",
    "endpoint": "socketPath",
    "tls_ca": "caPath",
    "tls_certificate": "certPath",
    "tls_key": "keyPath",
    "devices": "init.deviceRequests.DeviceIDs",
    "per_minute": "price",
    "target": "id",
    "target_kind": "type",
}
OWN_DEVICES, BY_FILES = "init.devices", "init.advanced.Devices"  # where there are no ids of NVIDIA


@contextmanager
def errors_in_file(wanted: WantedEnvironment | WantedEngine) -> Iterator[None]:
    """A ValidationError raised within names paths of the file instead of ours."""
    try:
        yield
    except ValidationError as error:
        found = error.update_error_dict({})
        raise ValidationError({path_in_file(wanted, path): found[path] for path in found}) from error


def refusal_lines(error: ValidationError) -> list[str]:
    """Every refusal of an import as a line, with the path of the value."""
    found = error.update_error_dict({})
    return [
        text if path == NON_FIELD_ERRORS else f"{path}: {text}"
        for path, texts in found.items()
        for text in ValidationError(texts).messages
    ]


def path_in_file(wanted: WantedEnvironment | WantedEngine, path: str) -> str:
    """Where the value stands that our rule calls `path`: "resources.cpu.max" → "[0].environments[1].resources[0].max"."""
    first, _, rest = path.partition(".")
    if isinstance(wanted, WantedEnvironment):
        if first == "cores":
            return wanted.cores.path
        if first == "resources" and rest:
            rest = _of_devices(wanted, rest)
            return _joined({one.slug: one.path for one in wanted.resources}, rest, f"{wanted.path}.resources")
        if first == "constraints":
            return _in_constraints(wanted, path)
        if first == "free_tier" and wanted.free_tier is not None:
            return _in_free_tier(wanted, rest)
        if first == "fees":
            return _joined(
                {one.currency: one.path for one in wanted.price_lists}, rest, f"{wanted.path}.fees"
            )
    return wanted.path if path == NON_FIELD_ERRORS else f"{wanted.path}.{_name(path)}"


def _of_devices(wanted: WantedEnvironment, rest: str) -> str:
    """The devices of a resource stand in one of three places of a file."""
    slug, _, name = rest.partition(".")
    paths = [device.path for one in wanted.resources if one.slug == slug for device in one.devices]
    if name != "devices" or not paths:
        return rest
    place = next((place for place in (OWN_DEVICES, BY_FILES) if f".{place}" in paths[0]), name)
    return f"{slug}.{place}"


def _in_free_tier(wanted: WantedEnvironment, rest: str) -> str:
    assert wanted.free_tier is not None
    free = wanted.free_tier
    if rest.startswith("resources."):
        parts = {part.slug: part.path for part in free.parts}
        return _joined(parts, rest.removeprefix("resources."), f"{free.path}.resources")
    return f"{free.path}.{_name(rest)}" if rest else free.path


def _in_constraints(wanted: WantedEnvironment, path: str) -> str:
    for one in wanted.constraints:
        key, _, field = path.rpartition(".")
        if one.key in (path, key):
            return one.path if path == one.key else f"{one.path}.{_name(field)}"
    return f"{wanted.path}.{path}"


def _joined(paths: dict[str, str], rest: str, otherwise: str) -> str:
    slug, _, field = rest.partition(".")
    where = paths.get(slug, f"{otherwise}.{slug}")
    if field in (OWN_DEVICES, BY_FILES):
        return f"{where}.{field}"
    return f"{where}.{_name(field)}" if field else where


def _name(path: str) -> str:
    return ".".join(NAMES.get(name, name) for name in path.split("."))
