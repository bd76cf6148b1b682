"""The fleet in the admin."""

from workers.fleet.admin.bindings import BindingAdmin
from workers.fleet.admin.owners import OwnerAdmin, PolicyAdmin, RemoteWorkerAdmin
from workers.fleet.admin.units import AuditAdmin, FaultAdmin, UnitAdmin

__all__ = [
    "AuditAdmin",
    "BindingAdmin",
    "FaultAdmin",
    "OwnerAdmin",
    "PolicyAdmin",
    "RemoteWorkerAdmin",
    "UnitAdmin",
]
