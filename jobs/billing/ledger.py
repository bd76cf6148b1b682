"""The ledger's only writer: transactions that sum to zero, and the balances that follow them."""

from collections.abc import Sequence
from decimal import Decimal, localcontext

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F

from compute_site.core.db import lock_one, require_transaction
from compute_site.core.errors import IdempotencyConflict
from jobs.billing.charges import EXACT, TOO_LARGE
from jobs.billing.models import Account, Balance, Book, LedgerEntry, LedgerTransaction, TransactionKind

Side = tuple[Book, Account | None, Decimal]
DEFAULT_CURRENCY = "credit"


def post(
    kind: TransactionKind,
    currency: str,
    sides: Sequence[Side],
    *,
    reference: str,
    job_id: int | None = None,
    posted_by: str = "",
) -> LedgerTransaction:
    """Write one transaction with its entries; balances of accounts follow. Needs the locks of those accounts.

    Raises ValueError when the sides do not sum to zero, IntegrityError when the reference was posted before or a
    balance would no longer cover its holds: the caller's transaction is then rolled back.
    """
    require_transaction()
    with localcontext(EXACT):
        total = sum(amount for _, _, amount in sides)
    if len(sides) < 2 or total:
        raise ValueError(f"{kind} {reference}: the sides of a transaction sum to zero")
    posted = LedgerTransaction.objects.create(
        kind=kind, currency=currency, reference=reference, job_id=job_id, posted_by=posted_by[:150]
    )
    LedgerEntry.objects.bulk_create(
        LedgerEntry(transaction=posted, book=book, account=account, amount=amount)
        for book, account, amount in sides
    )
    for _, account, amount in sides:
        if account is not None:
            rows = Balance.objects.filter(account=account, currency=currency)
            if rows.update(amount=F("amount") + amount) != 1:
                Balance.objects.create(account=account, currency=currency, amount=amount)
    return posted


def top_up(
    account: Account, amount: Decimal, currency: str = DEFAULT_CURRENCY, *, reference: str, by: str = ""
) -> tuple[LedgerTransaction, bool]:
    """Give an account money that was paid outside the site; returns the transaction and whether it was there before.

    The same reference tops up once, however often it is sent. Raises IdempotencyConflict when it stands for another
    top-up, ValidationError for an amount that is not above 0 or has more than 18 decimals; nothing is changed then.
    """
    _check(amount, currency, reference)
    try:
        with transaction.atomic():
            account = lock_one(Account.objects.filter(pk=account.pk))
            earlier = _earlier(reference)
            if earlier is not None:
                return _same(earlier, account, amount, currency), True
            _check_room(account, amount, currency)
            sides = [(Book.ACCOUNT, account, amount), (Book.OUTSIDE, None, amount.copy_negate())]
            return post(TransactionKind.TOP_UP, currency, sides, reference=reference, posted_by=by), False
    except IntegrityError:
        # The account's lock keeps equal top-ups apart: this one was for another account, at the same moment.
        if _earlier(reference) is None:
            raise
        raise _conflict(reference) from None


def _check(amount: Decimal, currency: str, reference: str) -> None:
    errors = {}
    if not amount.is_finite() or not 0 < amount < TOO_LARGE:
        errors["amount"] = "An amount is above 0 and has at most 20 digits before the point."
    elif int(amount.normalize(EXACT).as_tuple().exponent) < -18:
        errors["amount"] = "An amount has at most 18 decimals."
    for name, text, longest in (("currency", currency, 128), ("reference", reference, 255)):
        if not 1 <= len(text) <= longest or not text.isprintable():
            errors[name] = f"1 to {longest} printable characters."
    if errors:
        raise ValidationError(errors)


def _check_room(account: Account, amount: Decimal, currency: str) -> None:
    balance = Balance.objects.filter(account=account, currency=currency).first()
    if balance is not None and EXACT.add(balance.amount, amount) >= TOO_LARGE:
        raise ValidationError({"amount": "The balance would no longer fit."})


def _earlier(reference: str) -> LedgerTransaction | None:
    return LedgerTransaction.objects.filter(kind=TransactionKind.TOP_UP, reference=reference).first()


def _same(earlier: LedgerTransaction, account: Account, amount: Decimal, currency: str) -> LedgerTransaction:
    entry = earlier.entries.get(book=Book.ACCOUNT)
    if (entry.account_id, entry.amount, earlier.currency) != (account.pk, amount, currency):
        raise _conflict(earlier.reference)
    return earlier


def _conflict(reference: str) -> IdempotencyConflict:
    return IdempotencyConflict(f"The reference {reference} was used before for another top-up.")
