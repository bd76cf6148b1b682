"""Remote workers come, give signs of life, fall silent, and are retired."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, PermissionsMixin
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from compute_site.core.db import ClockTimestamp, constraint_name, database_now, lock
from jobs.billing.models import Membership, Role
from workers.fleet import signing
from workers.fleet.models import Binding, Nonce, OwnerKey, RemoteStatus, RemoteWorker
from workers.fleet.requests import Conflict, NotEntitled, Retired, Signed, burn
from workers.fleet.transitions import move_worker

NONCE_KEPT = timedelta(hours=24)


def register(signed: Signed, statement: Mapping[str, Any], signature: str, version: str = "") -> RemoteWorker:
    """Make or refresh the worker whose key signed, by its owner's binding; uses the nonce up.

    After: pending when it is new, else as it was. Raises NotEntitled (unknown owner, forged, expired or revoked
    binding), Retired, Conflict (another owner's worker, used nonce): then nothing was written.
    """
    with transaction.atomic():
        owner_key = _owner_key(signed, statement, signature)
        found = lock(RemoteWorker.objects.filter(key=signed.key))
        if found and found[0].owner_id != owner_key.owner_id:
            raise Conflict("This worker key is bound to another owner.", code="bound_elsewhere")
        if found and found[0].status == RemoteStatus.RETIRED:
            raise Retired("This worker was retired; it is not needed any more.")
        burn(signed)
        binding = _binding(owner_key, statement, signature)
        fields = {
            "binding": binding,
            "capabilities": dict(statement["capabilities"]),
            "slots": statement["capabilities"].get("slots", 1),
            "provider": statement["provider"],
            "instance": statement["instance"],
            "version": version,
        }
        if found:
            RemoteWorker.objects.filter(pk=found[0].pk).update(**fields)
            return RemoteWorker.objects.get(pk=found[0].pk)
        return _create(signed.key, owner_key, fields)


def _create(key: str, owner_key: OwnerKey, fields: Mapping[str, Any]) -> RemoteWorker:
    try:
        return RemoteWorker.objects.create(key=key, owner=owner_key.owner, **fields)
    except IntegrityError as error:
        raise Conflict("This worker key is being registered by somebody else.") from error


def _owner_key(signed: Signed, statement: Mapping[str, Any], signature: str) -> OwnerKey:
    """The owner's key when the binding is theirs, for this worker, now."""
    key = OwnerKey.objects.select_related("owner").filter(key=statement["owner_key"], revoked_at=None).first()
    if key is None:
        raise NotEntitled("No owner here has this key.", code="unknown_owner")
    if statement["worker_key"] != signed.key:
        raise NotEntitled("The binding is for another worker's key.", code="binding_invalid")
    expires = statement["not_after"]
    data = signing.message(signing.BINDING, settings.SITE_ID, expires, dict(statement))
    if not signing.is_signed(key.key, data, signature):
        raise NotEntitled("The binding is not signed by this owner for this site.", code="binding_invalid")
    if not statement["not_before"] <= database_now().timestamp() < expires:
        raise NotEntitled("The binding is not valid now.", code="binding_expired")
    return key


def _binding(owner_key: OwnerKey, statement: Mapping[str, Any], signature: str) -> Binding:
    """The binding's row; one that was used before is used again."""
    defaults = {
        "statement": dict(statement),
        "signature": signature,
        "not_after": datetime.fromtimestamp(statement["not_after"], UTC),
    }
    try:
        with transaction.atomic():
            binding, _ = Binding.objects.get_or_create(
                owner_key=owner_key,
                worker_key=statement["worker_key"],
                serial=statement["serial"],
                defaults=defaults,
            )
    except IntegrityError as error:  # pragma: no cover - two registrations of one key at one moment
        raise Conflict(f"The binding is being recorded: {constraint_name(error)}.") from error
    if binding.revoked_at is not None:
        raise NotEntitled("The binding was revoked.", code="binding_revoked")
    if binding.statement != dict(statement):
        raise Conflict("Another binding of this key has the same serial.", code="serial_used")
    return binding


def heartbeat(worker: RemoteWorker, told: Mapping[str, Any]) -> RemoteWorker:
    """A sign of life: pending or stale → active. Raises Retired; then nothing changed.

    `told`: version, health and devices, by the worker's word.
    """
    fields: dict[str, Any] = {"heartbeat_at": ClockTimestamp()}
    fields |= {name: told[name] for name in ("version", "health", "devices")}
    alive = RemoteWorker.objects.filter(pk=worker.pk, status=RemoteStatus.ACTIVE)
    if not alive.update(**fields) and not move_worker(worker.pk, RemoteStatus.ACTIVE, **fields):
        raise Retired("This worker was retired; it is not needed any more.")
    return RemoteWorker.objects.get(pk=worker.pk)


def may_retire(worker: RemoteWorker, key: str, user: AbstractBaseUser | AnonymousUser) -> bool:
    """Who has a key of its owner's, who manages the owner's account, and the staff that the permission was given to."""
    if not user.is_authenticated:
        return worker.owner.keys.filter(key=key, revoked_at=None).exists()
    managers = Membership.objects.filter(account=worker.owner.account_id, role=Role.OWNER)
    assert isinstance(user, PermissionsMixin)
    return managers.filter(user=user.pk).exists() or user.has_perm("fleet.change_remoteworker")


def retire(worker: RemoteWorker) -> bool:
    """→ retired, for ever; what it holds is given to others by the next pass. False when it was before."""
    return move_worker(worker.pk, RemoteStatus.RETIRED)


def revoke(binding: Binding) -> None:
    """Let nobody in by this binding any more, for ever. Its worker becomes stale, and what it holds goes to others.

    Raises NotEntitled when it was revoked before; then nothing changes.
    """
    if not Binding.objects.filter(pk=binding.pk, revoked_at=None).update(revoked_at=ClockTimestamp()):
        raise NotEntitled("It was revoked before.", code="binding_revoked")


def silent_before(now: datetime) -> datetime:
    """Who gave no sign of life since then is stale."""
    return now - timedelta(seconds=settings.FLEET_TTL_SECONDS)


def active_workers(now: datetime) -> QuerySet[RemoteWorker]:
    """Those that are active by the clock, whatever was stored."""
    return RemoteWorker.objects.filter(status=RemoteStatus.ACTIVE, heartbeat_at__gte=silent_before(now))


def status_now(worker: RemoteWorker, now: datetime) -> str:
    """The status by the clock: an active one that fell silent is stale before any pass has stored it."""
    silent = worker.heartbeat_at is None or worker.heartbeat_at < silent_before(now)
    if worker.status == RemoteStatus.ACTIVE and silent:
        return RemoteStatus.STALE
    return worker.status


def store_stale(now: datetime) -> int:
    """Store as stale who has been silent for the TTL, and forget old nonces; returns how many became stale."""
    silent = Q(heartbeat_at__lt=silent_before(now))
    rows = RemoteWorker.objects.filter(silent, status=RemoteStatus.ACTIVE).values_list("pk", flat=True)
    Nonce.objects.filter(created_at__lt=now - NONCE_KEPT).delete()
    return sum(move_worker(pk, RemoteStatus.STALE, guard=silent) for pk in rows)
