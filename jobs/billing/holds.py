"""Holds: money set aside when a job is admitted, captured or released when it ends, once."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.models import F

from compute_site.core.db import ClockTimestamp, require_transaction
from compute_site.core.errors import InsufficientFunds, TransitionRefused
from compute_site.core.transitions import move
from jobs.billing.charges import EXACT, TOO_LARGE, charge, money_text
from jobs.billing.ledger import post
from jobs.billing.models import Account, Balance, Book, Hold, HoldStatus, TransactionKind
from jobs.billing.models.hold import TRANSITIONS
from jobs.models import Job

# One statement, for every paid job: nothing is held where the free balance does not cover it.
PLACE_SQL = """
WITH covered AS (
    UPDATE billing_balance SET held = held + %(amount)s
     WHERE account_id = %(account)s AND currency = %(currency)s AND amount - held >= %(amount)s
    RETURNING account_id)
INSERT INTO billing_hold (job_id, account_id, currency, amount, captured, status)
SELECT %(job)s, account_id, %(currency)s, %(amount)s, 0, 'open' FROM covered RETURNING id
"""


def place(job: Job) -> None:
    """Set aside the most that `job` may cost; part of its admission, under the account's lock.

    A job that costs nothing by its terms gets no hold. Raises InsufficientFunds: then nothing is held, and the
    caller's transaction is rolled back.
    """
    require_transaction()
    amount = charge(job.terms, job.max_duration)
    if not amount:
        return
    values: dict[str, Any] = {"job": job.pk, "account": job.account_id, "amount": amount}
    values["currency"] = job.terms["currency"]
    if amount < TOO_LARGE:
        with connection.cursor() as cursor:
            cursor.execute(PLACE_SQL, values)
            if cursor.fetchone() is not None:
                return
    raise _insufficient(values["currency"], amount, free_balance(job.account_id, values["currency"]))


def check_covered(terms: Mapping[str, Any], seconds: int, free: Decimal) -> None:
    """Whether a free balance covers the hold of a job with these terms and longest run, as `place` will ask.

    Raises InsufficientFunds. Nothing is set aside.
    """
    amount = charge(terms, seconds)
    if amount and (amount >= TOO_LARGE or amount > free):
        raise _insufficient(terms["currency"], amount, free)


def free_balance(account_id: int, currency: str) -> Decimal:
    """What of the account's balance no hold has set aside."""
    return free_balances(account_id).get(currency, Decimal(0))


def free_balances(account_id: int) -> dict[str, Decimal]:
    """As `free_balance`, by currency; one statement."""
    rows = Balance.objects.filter(account=account_id)
    return {row.currency: EXACT.subtract(row.amount, row.held) for row in rows}


def _insufficient(currency: str, amount: Decimal, free: Decimal) -> InsufficientFunds:
    return InsufficientFunds(
        f"This job needs a hold of {money_text(amount)} {currency}; the account has {money_text(free)} free."
    )


def close(job: Job, run_seconds: float | None) -> Decimal:
    """Capture what a run of `run_seconds` costs, at most the hold, and release the rest; None releases all of it.

    Part of the transaction that ends the job, under the account's lock. Before: open, or there is none (a job that
    costs nothing). After: captured or released. Returns what was captured. Raises TransitionRefused when it is
    closed already.
    """
    require_transaction()
    hold = Hold.objects.filter(job_id=job.pk).select_related("account").first()
    if hold is None:
        return Decimal(0)
    captured = min(charge(job.terms, run_seconds), hold.amount) if run_seconds is not None else Decimal(0)
    to = HoldStatus.CAPTURED if captured else HoldStatus.RELEASED
    if not move(Hold, hold.pk, to, TRANSITIONS, captured=captured, ended_at=ClockTimestamp()):
        raise TransitionRefused(f"the hold of job {job} is {hold.status} already")
    Balance.objects.filter(account=hold.account_id, currency=hold.currency).update(
        held=F("held") - hold.amount
    )
    if captured:
        _pay(hold, hold.account, captured, str(job.public_id))
    return captured


def _pay(hold: Hold, account: Account, amount: Decimal, reference: str) -> None:
    sides = [(Book.ACCOUNT, account, amount.copy_negate()), (Book.REVENUE, None, amount)]
    post(TransactionKind.CAPTURE, hold.currency, sides, reference=reference, job_id=hold.job_id)
