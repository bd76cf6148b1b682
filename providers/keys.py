"""Providers' keys at rest: sealed with AES-256-GCM under a ring of keys, each bound to the row it stands in."""

import base64
import binascii
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from compute_site.core.errors import SiteError

VERSION = "1"
FROM_SECRET_KEY = "site"


class KeyUnreadable(SiteError):
    """A sealed key cannot be opened: its ring key is missing, or it stands in another row than it was sealed for."""


def ring() -> dict[str, bytes]:
    """Keys by id, the one that seals first. Raises ImproperlyConfigured."""
    found: dict[str, bytes] = {}
    for entry in settings.PROVIDER_KEY_RING:
        name, colon, text = entry.partition(":")
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            key = b""
        if not (colon and name.isalnum() and name not in found and len(key) == 32):
            raise ImproperlyConfigured("PROVIDER_KEY_RING: each entry is id:base64 of 32 bytes, ids differ.")
        found[name] = key
    # Always able to open what was sealed before a ring was set.
    found.setdefault(FROM_SECRET_KEY, _from_secret_key())
    return found


def seal(text: str, place: str) -> str:
    """Encrypt under the ring's first key, for one place (table, row and field) only."""
    name, key = next(iter(ring().items()))
    nonce = secrets.token_bytes(12)
    sealed = AESGCM(key).encrypt(nonce, text.encode(), _bound(name, place))
    return ":".join((VERSION, name, base64.b64encode(nonce + sealed).decode()))


def unseal(sealed: str, place: str) -> str:
    """What `seal` encrypted for that place. Raises KeyUnreadable."""
    version, _, rest = sealed.partition(":")
    name, _, text = rest.partition(":")
    key = ring().get(name)
    if version == VERSION and key is not None:
        try:
            data = base64.b64decode(text, validate=True)
            return AESGCM(key).decrypt(data[:12], data[12:], _bound(name, place)).decode()
        except (InvalidTag, ValueError):
            pass
    raise KeyUnreadable("The account's key cannot be opened with the site's key ring; enter it again.")


def is_current(sealed: str) -> bool:
    """Whether it was sealed under the ring's first key."""
    return sealed.split(":")[1:2] == [next(iter(ring()))]


def _bound(name: str, place: str) -> bytes:
    return f"{VERSION}:{name}:{place}".encode()


def _from_secret_key() -> bytes:
    derive = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"compute-site provider keys")
    return derive.derive(settings.SECRET_KEY.encode())
