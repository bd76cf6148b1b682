"""The forms in which Ocean Node's configuration occurs: nested, flat (older), and a pool of resources with references."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

from compute_site.core.numbers import shown
from compute_site.core.strict_json import NotJSON, read_json
from environments.importing.devices import refuse_contradictions
from environments.importing.offers import read_access, read_free, read_prices
from environments.importing.plan import Note
from environments.importing.reading import Reading, Report
from environments.importing.resources import read_resources, slug_at
from environments.importing.wanted import WantedEngine, WantedEnvironment
from environments.models import ScanPolicy, Tier
from environments.models.engine import NO_ENVIRONMENT

TLS = {"caPath": "tls_ca", "certPath": "tls_certificate", "keyPath": "tls_key"}
UPKEEP = {
    "imageRetentionDays": "image_retention_days",
    "imageCleanupInterval": "image_cleanup_interval",
    "paymentClaimInterval": "payment_claim_interval",
}
NOT_KEPT = {
    "scanImageDBUpdateInterval": "the scanner sees to its own data.",
    "clusterMode": "an engine stands for itself here.",
}
WHOLE = "file"  # the path of a refusal of the configuration as a whole
# Seconds, where the file says nothing.
EXPIRY, LONGEST, SHORTEST = 604_800, 3_600, 60


def read_text(body: bytes) -> Any:
    """The value of a configuration as text (JSON). Raises ValidationError {path: messages}."""
    try:
        return read_json(body, parse_float=Decimal)
    except NotJSON as error:
        raise ValidationError({WHOLE: f"This is no JSON: {error}."}) from error


def read_configuration(value: Any, tokens: Mapping[str, str]) -> tuple[list[WantedEngine], list[Note]]:
    """Everything that the file wants, and notes on what it says in vain. Knows no host and reads no rows.

    `value` is JSON with Decimal for what has a point; `tokens` is the default token by chain id. Raises ValidationError
    {path of the file: messages}.
    """
    report = Report()
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not entries:
        raise ValidationError({WHOLE: f"Found {shown(value)}; a list of engines belongs here."})
    engines = [_engine(Reading(value, f"[{i}]", report), tokens) for i, value in enumerate(entries)]
    refuse_contradictions(engines, report)
    report.finish()
    return engines, report.notes


def _engine(entry: Reading, tokens: Mapping[str, str]) -> WantedEngine:
    endpoint, tls = _endpoint(entry), {ours: entry.text(key) for key, ours in TLS.items() if key in entry}
    upkeep = {key: entry.whole(key) for key in UPKEEP}
    for key, why in NOT_KEPT.items():
        entry.drop(key, why)
    fields: dict[str, Any] = {UPKEEP[key]: value for key, value in upkeep.items() if value is not None}
    if "enableBenchmark" in entry:
        fields["enable_benchmark"] = entry.flag("enableBenchmark")
    if (policy := _scan_policy(entry)) is not None:
        fields["scan_policy"] = policy
    return WantedEngine(
        path=entry.path,
        endpoint=endpoint,
        tls=tls,
        fields=fields,
        environments=_environments(entry, tokens),
    )


def _scan_policy(entry: Reading) -> str | None:
    """`scanPolicy` is our own word; Ocean Node has `scanImages`, which refuses. None: it stays as it is."""
    policy = entry.text("scanPolicy") or None
    if "scanImages" not in entry:
        return policy
    wanted = ScanPolicy.REFUSE.value if entry.flag("scanImages") else ScanPolicy.OFF.value
    if policy is not None:
        if (policy == ScanPolicy.OFF) != (wanted == ScanPolicy.OFF):
            text = (
                f"scanImages is {str(entry.flag('scanImages')).lower()} and scanPolicy is {policy}; keep one."
            )
            entry.report.refuse(entry.at("scanPolicy"), text)
        return policy
    if wanted != ScanPolicy.OFF and not settings.IMAGE_SCAN_COMMAND:
        text = (
            "there is no scanner, so the scan policy stays as it is; set IMAGE_SCAN_COMMAND and import again."
        )
        entry.report.note(entry.at("scanImages"), text)
        return None
    return wanted


def _endpoint(entry: Reading) -> str:
    socket, host, port = entry.text("socketPath"), entry.text("host"), entry.whole("port")
    protocol = entry.text("protocol")
    if socket:
        return f"unix://{socket}"
    return f"tcp://{host}:{port or (2375 if protocol == 'http' else 2376)}" if host else ""


def _environments(entry: Reading, tokens: Mapping[str, str]) -> list[WantedEnvironment]:
    if "environments" not in entry and any(key in entry for key in ("resources", "fees", "free")):
        text = "the older form, one environment that stands on the engine itself; imported as environment-1."
        entry.report.note(entry.path, text)
        return [_environment(entry, 1, None, tokens)]
    pool = _pool(entry) if "resources" in entry else None
    if "enableNetwork" in entry:
        entry.flag("enableNetwork")
        entry.report.note(entry.at("enableNetwork"), "stands on the engine; it belongs to each environment.")
    found: dict[str, WantedEnvironment] = {}
    readings = entry.objects("environments")
    for position, reading in enumerate(readings, start=1):
        wanted = _environment(reading, position, pool, tokens)
        if wanted.slug in found:
            reading.report.refuse(
                reading.at("id"), f"{wanted.slug} is the id of two environments; change one."
            )
        found[wanted.slug] = wanted
    if not readings:
        entry.report.refuse(entry.at("environments"), NO_ENVIRONMENT)
    return list(found.values())


def _pool(entry: Reading) -> dict[str, Reading]:
    pool: dict[str, Reading] = {}
    for reading in entry.objects("resources"):
        name = reading.text("id")
        if not name or name in pool:
            text = (
                f"{shown(name)} stands there twice; keep one."
                if name
                else "Found no id; every resource has one."
            )
            reading.report.refuse(reading.at("id"), text)
        else:
            pool[name] = reading
            if "total" in reading and "cpuList" in reading:
                reading.report.refuse(reading.path, "cpu: total and cpuList exclude each other; keep one.")
    return pool


def _environment(
    reading: Reading, position: int, pool: Mapping[str, Reading] | None, tokens: Mapping[str, str]
) -> WantedEnvironment:
    expiry, longest, shortest = (
        default if (value := reading.whole(key)) is None else value
        for key, default in (
            ("storageExpiry", EXPIRY),
            ("maxJobDuration", LONGEST),
            ("minJobDuration", SHORTEST),
        )
    )
    fields: dict[str, Any] = {
        "description": reading.text("description"),
        "storage_expiry": expiry,
        "max_job_duration": longest,
        "min_job_duration": shortest,
        "max_jobs": reading.whole("maxJobs"),
        "max_queue_wait": reading.whole("maxQueueWait"),
        "enable_network": reading.flag("enableNetwork"),
    }
    labels = reading.object("labels")
    if (
        labels is not None
    ):  # a file that says nothing of them, like any of Ocean Node's, leaves them as they are
        fields["labels"] = {name: labels.text(name) for name in labels.names()}
    resources, cores, constraints = read_resources(reading, pool)
    free_tier, free_rules = read_free(reading, resources, expiry, longest)
    return WantedEnvironment(
        slug=_slug(reading, position),
        path=reading.path,
        fields=fields,
        cores=cores,
        resources=list(resources.values()),
        constraints=constraints,
        free_tier=free_tier,
        price_lists=read_prices(reading, resources, tokens),
        access={Tier.PAID.value: read_access(reading), Tier.FREE.value: free_rules},
    )


def _slug(reading: Reading, position: int) -> str:
    name = reading.text("id")
    if name:
        return slug_at(reading, "id", name)
    slug = f"environment-{position}"
    reading.report.note(
        reading.path, f"has no id, so it is {slug}; give it one, or it changes with its place in the list."
    )
    return slug
