"""Reservations: made and released under the host's row lock, counted from live rows and nothing else.

The order in every transaction: lock the host, then read in new statements, then write. Raw SQL, because one take is
four statements this way and the host's lock is held only as long as they last.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from compute_site.core.db import all_rows, constraint_name, first_row, require_transaction
from compute_site.core.errors import TransitionRefused
from environments import alone
from environments.amounts import fill
from environments.models import (
    Environment,
    EnvironmentState,
    Host,
    ReservationStatus,
    ReservedAmount,
    ResourceKind,
    SlotSet,
    Tier,
)
from environments.models.slots import ALL, multirange
from environments.refusal import Refusals
from environments.statements import (
    CLAIM_SQL,
    DEVICES_SQL,
    INSERT_SQL,
    LOCK_BY_HOLDER_SQL,
    LOCK_SQL,
    RELEASE_REST_SQL,
    RELEASE_RUNNING_SQL,
)
from environments.use import ResourceUse, core_map, device_map, free_amounts, read_use

__all__ = [
    "Claim",
    "acquire",
    "amounts_of",
    "core_map",
    "device_map",
    "fill",
    "free_amounts",
    "lock_host",
    "release_rest",
    "release_running",
    "revoke",
]

HOST_FIELDS = [field.attname for field in Host._meta.concrete_fields]
HOST_COLUMNS = ", ".join(str(field.column) for field in Host._meta.concrete_fields)
_locked = threading.local()  # .hosts: host id → the transaction that locked it, of this thread's connection


@dataclass(frozen=True, slots=True)
class Claim:
    """What an attempt got: core indexes and device UUIDs of its host, and the numeric user of its container."""

    reservation_id: int
    uid: int
    cores: tuple[int, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Offer:
    """The row of CLAIM_SQL."""

    transaction: str
    host_id: int
    gone: bool
    state: str
    max_jobs: int | None
    jobs: int
    cores: list[list[int]]
    uid: int | None
    in_the_way: str | None


def lock_host(host_id: int) -> Host:
    """Lock the host's row and return it fresh: the first statement of every transaction that reserves or releases.

    Raises Host.DoesNotExist, and TransactionManagementError outside a transaction.
    """
    require_transaction()
    row = first_row(LOCK_SQL.format(columns=HOST_COLUMNS), [host_id])
    if row is None:
        raise Host.DoesNotExist(f"there is no host {host_id}")
    _locked.hosts = {**getattr(_locked, "hosts", {}), host_id: row[0]}
    return Host.from_db(connection.alias, HOST_FIELDS, row[1:])


def acquire(
    *,
    holder: UUID,
    environment: Environment,
    tier: str,
    amounts: Mapping[str, int],
    uid_range: tuple[int, int],
    slots: SlotSet = ALL,
) -> Claim:
    """Reserve `amounts` (by resource slug, as `fill` returned them) for an attempt; all of it or nothing.

    The caller holds the host's lock in this transaction (TransactionManagementError otherwise) and wraps the call in
    a savepoint of its own. `uid_range` is first and count; cores and devices are claimed
    out of `slots` alone. Before: no reservation of `holder`. After: one that is
    held, with cores and devices by row. Raises CapacityUnavailable, with one line in the log, and TransitionRefused
    when `holder` has a reservation already.
    """
    offer = _offer(environment, tier, uid_range, slots)
    refusals = Refusals(environment, tier, offer.host_id)
    wanted = _with_room(offer, environment, tier, amounts, refusals)
    cores = offer.cores[: _sum(wanted, ResourceKind.CPU)]
    devices = _free_devices(wanted, offer.host_id, slots)
    uid = _enough(offer, wanted, cores, devices, refusals, users=uid_range[1])
    reservation_id = _insert(
        holder=holder,
        environment=environment,
        tier=tier,
        wanted=wanted,
        offer=offer,
        cores=cores,
        devices=devices,
    )
    return Claim(
        reservation_id, uid, tuple(index for _, index in cores), tuple(uuid for _, _, uuid in devices)
    )


def _with_room(
    offer: _Offer, environment: Environment, tier: str, amounts: Mapping[str, int], refusals: Refusals
) -> list[tuple[ResourceUse, int]]:
    """Each resource that is asked for, with its amount. Raises the first refusal: by the offer, then by an amount."""
    uses = {use.slug: use for use in read_use([environment.pk])}
    _check_offer(offer, refusals)
    for slug, amount in amounts.items():
        if slug not in uses or amount > uses[slug].room(tier):
            raise refusals.resource(slug, amount, uses.get(slug))
    return [(uses[slug], amount) for slug, amount in amounts.items() if amount > 0]


def _enough(
    offer: _Offer,
    wanted: Sequence[tuple[ResourceUse, int]],
    cores: list[list[int]],
    devices: list[tuple[int, int, str]],
    refusals: Refusals,
    *,
    users: int,
) -> int:
    """The numeric user, where the things that were found are as many as wanted. Raises the refusal of what is short."""
    if not cores:
        raise refusals.other("cpu", "no core is free")
    if offer.uid is None:
        raise refusals.other("uid", "no numeric user is free", total=users)
    if len(cores) < _sum(wanted, ResourceKind.CPU):
        raise refusals.other("cpu", f"only {len(cores)} cores are free in the worker's slots")
    for use, amount in wanted:
        got = sum(key == use.resource_id for key, _, _ in devices)
        if use.kind == ResourceKind.DEVICE and amount != got:
            raise refusals.other(use.slug, f"only {got} devices are healthy and free in the worker's slots")
    return offer.uid


def release_running(holder: UUID) -> bool:
    """The container is seen gone: give back cores, devices, memory and counters; disk and uid stay claimed.

    Locks the host's row itself. Before: held or revoked, not exited. After: exited_at set. Returns whether this call
    did it; a second one changes nothing.
    """
    _lock_host_of(holder)
    return first_row(RELEASE_RUNNING_SQL, [holder]) is not None


def release_rest(holder: UUID, *, never_started: bool = False) -> bool:
    """The workspace is gone: give back disk and uid; the reservation is released.

    `never_started` gives back everything at once, for an attempt whose container is known never to have run. Locks the
    host's row itself. Returns whether this call did it; a second one changes nothing. Raises TransitionRefused while
    cores and memory are still claimed.
    """
    _lock_host_of(holder)
    if never_started:
        first_row(RELEASE_RUNNING_SQL, [holder])
    if first_row(RELEASE_REST_SQL, [holder]) is not None:
        return True
    if first_row(
        "SELECT 1 FROM environments_reservation WHERE holder = %s AND released_at IS NULL", [holder]
    ):
        raise TransitionRefused(f"reservation of {holder}: its container is not known to be gone")
    return False


def amounts_of(holder: UUID) -> dict[str, int]:
    """What the reservation was made for, by kind of resource (cores, MiB, counts), released or not."""
    rows = ReservedAmount.objects.filter(reservation__holder=holder).values_list("kind", "amount")
    found = dict.fromkeys(ResourceKind.values, 0)
    for kind, amount in rows:
        found[kind] += amount
    return found


def revoke(holder: UUID) -> bool:
    """held → revoked: the job may move on, the physical things stay claimed. Returns whether this call did it."""
    statement = (
        "UPDATE environments_reservation SET status = %s WHERE holder = %s AND status = %s RETURNING id"
    )
    return first_row(statement, [ReservationStatus.REVOKED, holder, ReservationStatus.HELD]) is not None


def _lock_host_of(holder: UUID) -> None:
    require_transaction()
    first_row(LOCK_BY_HOLDER_SQL, [holder])


def _sum(wanted: Sequence[tuple[ResourceUse, int]], kind: str) -> int:
    return sum(amount for use, amount in wanted if use.kind == kind)


def _offer(environment: Environment, tier: str, uid_range: tuple[int, int], slots: SlotSet) -> _Offer:
    require_transaction()
    row = first_row(
        CLAIM_SQL,
        {
            "environment": environment.pk,
            "tier": tier,
            "first": uid_range[0],
            "count": uid_range[1],
            "cores": multirange(slots.cores),
            "rest": settings.MAX_BYPASS_SECONDS,
        },
    )
    if row is None:
        raise Host.DoesNotExist(f"{environment}: a fleet engine stands on no host of ours")
    offer = _Offer(*row)
    if getattr(_locked, "hosts", {}).get(offer.host_id) != offer.transaction:
        raise transaction.TransactionManagementError("acquire needs lock_host first, in the same transaction")
    return offer


def _check_offer(offer: _Offer, refusals: Refusals) -> None:
    environment, told = refusals.environment, ""
    if offer.gone or offer.state == EnvironmentState.RETIRED:
        told = f"{environment} is {'gone with its host' if offer.gone else offer.state}"
    elif offer.in_the_way is not None:
        error = refusals.other("host", alone.WORDS[offer.in_the_way])
        error.of_host = environment.benchmark  # it is passed over by whatever starts on the host
        raise error
    elif refusals.tier == Tier.FREE and offer.max_jobs is None:
        told = f"{environment} has no free tier"
    elif offer.max_jobs is not None and offer.jobs >= offer.max_jobs:
        told = f"{offer.jobs} of {offer.max_jobs} {refusals.tier} jobs are there already"
    if told:
        raise refusals.other("jobs", told, used=offer.jobs, total=offer.max_jobs)


def _free_devices(
    wanted: Sequence[tuple[ResourceUse, int]], host_id: int, slots: SlotSet
) -> list[tuple[int, int, str]]:
    """(resource, device, uuid) of at most as many healthy devices as were asked, none of them held anywhere."""
    devices = []
    for use, amount in wanted:
        if use.kind == ResourceKind.DEVICE:
            rows = all_rows(DEVICES_SQL, [use.resource_id, host_id, multirange(slots.devices), amount])
            devices += [(use.resource_id, device, uuid) for device, uuid in rows]
    return devices


def _insert(
    *,
    holder: UUID,
    environment: Environment,
    tier: str,
    wanted: Sequence[tuple[ResourceUse, int]],
    offer: _Offer,
    cores: list[list[int]],
    devices: list[tuple[int, int, str]],
) -> int:
    """The reservation and all its rows, in one statement."""
    values = {
        "holder": holder,
        "host": offer.host_id,
        "environment": environment.pk,
        "tier": tier,
        "uid": offer.uid,
        "resources": [use.resource_id for use, _ in wanted],
        "kinds": [use.kind for use, _ in wanted],
        "amounts": [amount for _, amount in wanted],
        "cores": [key for key, _ in cores],
        "device_resources": [resource for resource, _, _ in devices],
        "devices": [device for _, device, _ in devices],
    }
    try:
        row = first_row(INSERT_SQL, values)
    except IntegrityError as error:
        if constraint_name(error) == "reservation_once_per_attempt":
            raise TransitionRefused(f"{holder} has a reservation already") from error
        raise
    assert row is not None
    return int(row[0])
