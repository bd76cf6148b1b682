"""What may run on which share of which machine."""

from environments.models.access import AccessKind, AccessList, AccessListEntry, AccessRule, WalletAddress
from environments.models.constraint import Constraint, constraint_path
from environments.models.device_init import DeviceInit, InitKind
from environments.models.edit import Door, Edit
from environments.models.engine import Engine, EngineKind, EngineState, ScanPolicy
from environments.models.environment import LABEL, MAX_LABEL_BYTES, MAX_LABELS, Environment, EnvironmentState
from environments.models.host import NVIDIA, Core, Device, DeviceHealth, Host
from environments.models.offer import FreeResource, FreeTier, Price, PriceList
from environments.models.reservation import (
    Reservation,
    ReservationStatus,
    ReservedAmount,
    ReservedCore,
    ReservedDevice,
    Tier,
)
from environments.models.resource import Resource, ResourceDevice, ResourceKind, Sharing
from environments.models.slots import Slots, SlotSet

__all__ = [
    "LABEL",
    "MAX_LABELS",
    "MAX_LABEL_BYTES",
    "NVIDIA",
    "AccessKind",
    "AccessList",
    "AccessListEntry",
    "AccessRule",
    "Constraint",
    "Core",
    "Device",
    "DeviceHealth",
    "DeviceInit",
    "Door",
    "Edit",
    "Engine",
    "EngineKind",
    "EngineState",
    "Environment",
    "EnvironmentState",
    "FreeResource",
    "FreeTier",
    "Host",
    "InitKind",
    "Price",
    "PriceList",
    "Reservation",
    "ReservationStatus",
    "ReservedAmount",
    "ReservedCore",
    "ReservedDevice",
    "Resource",
    "ResourceDevice",
    "ResourceKind",
    "ScanPolicy",
    "Sharing",
    "SlotSet",
    "Slots",
    "Tier",
    "WalletAddress",
    "constraint_path",
]
