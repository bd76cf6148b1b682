"""Accounts at providers, rented pods and what happened to them, pods of ours that no row knows."""

from providers.models.account import ProviderAccount, ProviderKind
from providers.models.orphan import Orphan
from providers.models.pod import FINAL, LISTED, TRANSITIONS, UNSURE, Pod, PodEvent, PodStatus

__all__ = [
    "FINAL",
    "LISTED",
    "TRANSITIONS",
    "UNSURE",
    "Orphan",
    "Pod",
    "PodEvent",
    "PodStatus",
    "ProviderAccount",
    "ProviderKind",
]
