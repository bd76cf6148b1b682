"""Accounts, the ledger, and what is held of an account's money for its jobs."""

from jobs.billing.models.account import Account, Membership, Role
from jobs.billing.models.hold import Hold, HoldStatus
from jobs.billing.models.ledger import Balance, Book, LedgerEntry, LedgerTransaction, TransactionKind

__all__ = [
    "Account",
    "Balance",
    "Book",
    "Hold",
    "HoldStatus",
    "LedgerEntry",
    "LedgerTransaction",
    "Membership",
    "Role",
    "TransactionKind",
]
