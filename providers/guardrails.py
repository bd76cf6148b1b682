"""What is refused before any call to a provider. Pure functions; each refusal is a `CostGuardrailError`."""

import ipaddress
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from providers.base import InstanceSpec, Offer
from providers.errors import CostGuardrailError, SoldOut

MAX_LIFETIME_HOURS = 720
MAX_BODY_BYTES = 64 * 1024
MAX_GPUS = 64
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE = re.compile(r"[a-z0-9.-]+(:[0-9]{1,5}(?=/))?(/[a-z0-9._-]+)*")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PLAIN = re.compile(r"[A-Za-z0-9 _./:=@%+,-]*")  # No character that means something to a shell.
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s\"'<>,;]+")
_SSH_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp\d{3}) [A-Za-z0-9+/=]{40,2000}( [\w@.+-]{1,100})?"
)


def checked(spec: InstanceSpec) -> InstanceSpec:
    """The spec with a whole number of hours and without variables that a provider's edge would refuse."""
    checks = {
        "name": _NAME.fullmatch(spec.name),
        "image": _IMAGE.fullmatch(spec.image),
        "tag": re.fullmatch(r"[\w.-]{0,128}", spec.tag),
        "variables": all(_VARIABLE.fullmatch(key) for key in spec.env),
        "ports": all(type(port) is int and 0 < port < 65_536 for port in spec.ports),
        "ssh keys": all(_SSH_KEY.fullmatch(key) for key in spec.ssh_keys),
        "gpu count": type(spec.gpu_count) is int and 1 <= spec.gpu_count <= MAX_GPUS,
    }
    if wrong := [name for name, passes in checks.items() if not passes]:
        raise CostGuardrailError(f"Not acceptable: {', '.join(wrong)}.")
    if not _DIGEST.fullmatch(spec.digest):
        raise CostGuardrailError("The image needs its digest (sha256: and 64 hexadecimal digits).")
    check_command(spec.startup_command)
    return replace(
        spec,
        max_lifetime_hours=whole_hours(spec.max_lifetime_hours),
        max_price_per_hour=price_bound(spec.max_price_per_hour),
        env={key: value for key, value in spec.env.items() if not has_local_url(value)},
    )


def whole_hours(value: Any) -> int:
    """A lifetime in whole hours, cut (1.9 → 1). Less than one hour would be cut to "off": refused."""
    hours = _number(value, "A longest lifetime in hours")
    if hours < 1:
        raise CostGuardrailError("The longest lifetime must be at least one hour.")
    if hours > MAX_LIFETIME_HOURS:
        raise CostGuardrailError(f"The longest lifetime may be {MAX_LIFETIME_HOURS} hours.")
    return int(hours)


def price_bound(value: Any) -> Decimal:
    """A highest price per GPU and hour, above zero."""
    price = _number(value, "A highest price per GPU and hour")
    if price <= 0:
        raise CostGuardrailError("The highest price must be above zero.")
    return price


def _number(value: Any, what: str) -> Decimal:
    try:
        number = Decimal(str(value)) if type(value) in (int, float, str, Decimal) else None
    except InvalidOperation:
        number = None
    if number is None or not math.isfinite(number):
        raise CostGuardrailError(f"{what} is required, as a number.")
    return number


def check_command(command: str) -> None:
    """Refuses what a shell would read as more than words, and addresses that mean the machine itself."""
    if not _PLAIN.fullmatch(command):
        raise CostGuardrailError(
            "The startup command has characters that a shell would act on; use letters, digits and _./:=@%+,- alone."
        )
    if has_local_url(command):
        raise CostGuardrailError("The startup command names a loopback or plain numeric address.")


def has_local_url(text: str) -> bool:
    """Whether a loopback URL, or one with plain http to a numeric address, is in there."""
    return any(_is_local(found) for found in _URL.findall(text))


def _is_local(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if re.fullmatch(r"0x[0-9a-f]+|[0-9]+", host):  # One number for a whole address.
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.startswith("127.")
    return parts.scheme.lower() == "http" or address.is_loopback or address.is_unspecified


def check_body(body: Mapping[str, Any] | None, key: str) -> None:
    """The last look at anything that is sent: its size, no local address, and never the account's key."""
    text = json.dumps(body or {})
    if len(text.encode()) > MAX_BODY_BYTES:
        raise CostGuardrailError(f"The request is larger than {MAX_BODY_BYTES} bytes.")
    if key and key in text:
        raise CostGuardrailError("The account's key was about to be sent in a body.")
    if any(has_local_url(value) for value in _texts(body or {})):
        raise CostGuardrailError("A loopback or plain numeric address was about to be sent.")


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def choose(spec: InstanceSpec, offers: Iterable[Offer]) -> Offer:
    """The offer to rent: within the cap and able to give exactly `gpu_count` GPUs; a whole one first, then the
    cheapest, then by id. Raises SoldOut, or CostGuardrailError when only the price stands in the way."""
    kind = spec.gpu_type.lower()
    fitting = [
        offer
        for offer in offers
        if offer.smallest <= spec.gpu_count <= offer.gpu_count
        and kind in offer.gpu_type.lower()
        and spec.offer_id in ("", offer.id)
    ]
    if not fitting:
        raise SoldOut("Nothing that fits is on offer now.")
    within = [offer for offer in fitting if 0 < offer.price_per_gpu_hour <= spec.max_price_per_hour]
    if not within:
        cheapest = min(offer.price_per_gpu_hour for offer in fitting)
        raise CostGuardrailError(
            f"The cheapest costs {cheapest} per GPU and hour; the cap is {spec.max_price_per_hour}."
        )
    return min(
        within, key=lambda offer: (offer.gpu_count != spec.gpu_count, offer.price_per_gpu_hour, offer.id)
    )
