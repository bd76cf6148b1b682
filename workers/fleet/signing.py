"""What is signed, and how. Pure: no Django, no clock; the agent and the site both use it.

A signature is made over canonical JSON that names its purpose (domain), the site it is meant for (audience) and when
it ends: one for another purpose or site is worth nothing here.
"""

import base64
import binascii
import hashlib
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from compute_site.core.canonical import canonical

BINDING = "compute-site/binding/v1"
REQUEST = "compute-site/request/v1"
PROOF = "compute-site/proof/v1"
SKEW_SECONDS = 300
KIND = "ed25519:"

KEY_HEADER = "X-Fleet-Key"
TIMESTAMP_HEADER = "X-Fleet-Timestamp"
NONCE_HEADER = "X-Fleet-Nonce"
SIGNATURE_HEADER = "X-Fleet-Signature"


class BadKey(ValueError):
    """The text is no key that we know how to use."""


def message(domain: str, audience: str, expires: int, payload: Any) -> bytes:
    """The bytes that are signed. `audience` is the site's id, `expires` in seconds since the epoch."""
    return canonical({"domain": domain, "audience": audience, "expires": expires, "payload": payload})


def request_message(
    audience: str, method: str, path: str, *, query: str, timestamp: int, nonce: str, body: bytes
) -> bytes:
    """What a request's signature covers: method, path with its query sorted, time, nonce, sha256 of the body."""
    pairs = "&".join(sorted(filter(None, query.split("&"))))
    digest = hashlib.sha256(body).hexdigest()
    lines = [method.upper(), f"{path}?{pairs}" if pairs else path, str(timestamp), nonce, digest]
    return message(REQUEST, audience, timestamp + SKEW_SECONDS, "\n".join(lines))


def proof_message(audience: str, manifest_sha256: str, unit: str, expires: int) -> bytes:
    """What a worker signs under its result: the hash of `{manifest_sha256}:{unit}`."""
    return message(PROOF, audience, expires, hashlib.sha256(f"{manifest_sha256}:{unit}".encode()).hexdigest())


def key_text(private: Ed25519PrivateKey) -> str:
    """The public key as it is written: `ed25519:<base64>`."""
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return KIND + base64.b64encode(raw).decode()


def read_key(text: str) -> Ed25519PublicKey:
    """The key in `text`. Raises BadKey, also for a second spelling of the same key."""
    try:
        raw = base64.b64decode(text.removeprefix(KIND), validate=True)
        if not text.startswith(KIND) or KIND + base64.b64encode(raw).decode() != text:
            raise BadKey(f"not {KIND}<base64>")
        return Ed25519PublicKey.from_public_bytes(raw)
    except (binascii.Error, ValueError) as error:
        raise BadKey(str(error)) from error


def sign(private: Ed25519PrivateKey, data: bytes) -> str:
    """The signature in base64."""
    return base64.b64encode(private.sign(data)).decode()


def is_signed(key: str, data: bytes, signature: str) -> bool:
    """Whether `signature` (base64) over `data` is by `key`; nonsense is no signature."""
    try:
        read_key(key).verify(base64.b64decode(signature, validate=True), data)
    except (InvalidSignature, ValueError):
        return False
    return True
