"""The operator's pages: hosts, devices, engines, environments, and the reservations on them."""

from environments.admin.access import AccessListAdmin, WalletAddressAdmin
from environments.admin.environment import EnvironmentAdmin
from environments.admin.machine import DeviceAdmin, EngineAdmin, HostAdmin
from environments.admin.reservation import ReservationAdmin

__all__ = [
    "AccessListAdmin",
    "DeviceAdmin",
    "EngineAdmin",
    "EnvironmentAdmin",
    "HostAdmin",
    "ReservationAdmin",
    "WalletAddressAdmin",
]
