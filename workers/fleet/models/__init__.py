"""Remote workers that are not trusted, the work they are given, and what came of it."""

from workers.fleet.models.owner import Binding, Nonce, Owner, OwnerKey, RemoteStatus, RemoteWorker
from workers.fleet.models.unit import (
    Audit,
    AuditStatus,
    Fault,
    FleetPolicy,
    Replica,
    ReplicaStatus,
    Unit,
    UnitStatus,
)

__all__ = [
    "Audit",
    "AuditStatus",
    "Binding",
    "Fault",
    "FleetPolicy",
    "Nonce",
    "Owner",
    "OwnerKey",
    "RemoteStatus",
    "RemoteWorker",
    "Replica",
    "ReplicaStatus",
    "Unit",
    "UnitStatus",
]
