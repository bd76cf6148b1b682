"""Who sends a signed request, checked in order: headers, skew, signature, eligibility, and only then the nonce.

The nonce is written in the same transaction as what the request does: a refused request burns nothing.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, transaction

from compute_site.core.db import constraint_name, database_now, require_transaction
from compute_site.core.errors import Rejected
from workers.fleet import signing
from workers.fleet.models import Nonce, OwnerKey, RemoteStatus, RemoteWorker

NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
TIMESTAMP = re.compile(r"[0-9]{1,12}")


class NotAuthentic(Rejected):
    """The request is not signed by the key that it names, or not now."""

    status = 401
    code = "not_authentic"


class NotEntitled(Rejected):
    """An authentic request of somebody who may not do this."""

    code = "not_entitled"


class Retired(NotEntitled):
    """The remote worker was retired, for ever."""

    code = "retired"


class Conflict(Rejected):
    """The nonce was used before, or the key is somebody else's."""

    status = 409
    code = "conflict"


@dataclass(frozen=True, slots=True)
class Signed:
    """An authentic request: the key that signed it and its nonce, not used up yet."""

    key: str
    nonce: str


def authenticate(
    headers: Mapping[str, str], method: str, path: str, query: str, body: bytes, *, now: float | None = None
) -> Signed:
    """Headers, skew, signature. `now` is in seconds since the epoch. Raises NotAuthentic; writes nothing."""
    names = (
        signing.KEY_HEADER,
        signing.TIMESTAMP_HEADER,
        signing.NONCE_HEADER,
        signing.SIGNATURE_HEADER,
    )
    key, timestamp, nonce, signature = (headers.get(name, "") for name in names)
    if not (key and signature and TIMESTAMP.fullmatch(timestamp) and NONCE.fullmatch(nonce)):
        raise NotAuthentic(f"A signed request carries {', '.join(names)}.", code="headers")
    if abs((time.time() if now is None else now) - int(timestamp)) > signing.SKEW_SECONDS:
        raise NotAuthentic(
            f"Its timestamp is more than {signing.SKEW_SECONDS} s away from the site's clock.", code="skew"
        )
    data = signing.request_message(
        settings.SITE_ID, method, path, query=query, timestamp=int(timestamp), nonce=nonce, body=body
    )
    if not signing.is_signed(key, data, signature):
        raise NotAuthentic("The signature is not by this key over this request.", code="signature")
    return Signed(key, nonce)


def signing_worker(signed: Signed, public_id: UUID | None = None) -> RemoteWorker:
    """The remote worker whose key signed; `public_id` is the one that the request is about.

    Raises ObjectDoesNotExist (no such worker), NotEntitled (another one's key, a binding that has ended), Retired.
    """
    rows = RemoteWorker.objects.select_related("owner__account", "binding__owner_key")
    if public_id is None:
        worker = rows.filter(key=signed.key).first()
        if worker is None:
            raise ObjectDoesNotExist("This key is of no registered worker: register it first.")
    else:
        worker = rows.filter(public_id=public_id).first()
        if worker is None:
            raise ObjectDoesNotExist("There is no such worker.")
        if worker.key != signed.key:
            raise NotEntitled("This is another worker's.")
    if worker.status == RemoteStatus.RETIRED:
        raise Retired("This worker was retired; it is not needed any more.")
    binding = worker.binding
    if binding.revoked_at or binding.owner_key.revoked_at or binding.not_after <= database_now():
        raise NotEntitled(
            "Its binding has ended: register with a new one of its owner's.", code="binding_ended"
        )
    return worker


def check_reader(signed: Signed) -> None:
    """Whoever has a key here may read the fleet. Raises NotEntitled."""
    known = (
        OwnerKey.objects.filter(key=signed.key, revoked_at=None).exists()
        or RemoteWorker.objects.filter(key=signed.key).exclude(status=RemoteStatus.RETIRED).exists()
    )
    if not known:
        raise NotEntitled("This key is of nobody here.")


def burn(signed: Signed) -> None:
    """Use the nonce up, within the transaction of what the request does. Raises Conflict when it was used before."""
    require_transaction()
    try:
        with transaction.atomic():
            Nonce.objects.create(key=signed.key, value=signed.nonce)
    except IntegrityError as error:
        if constraint_name(error) != "fleet_nonce_once":
            raise
        raise Conflict("This nonce was used before.", code="nonce_used") from error
