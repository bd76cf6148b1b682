"""Double-entry bookkeeping: what is written stays, and each transaction sums to zero."""

from typing import Any, NoReturn

from django.db import models
from django.db.models import F, Q

from compute_site.core.db import ClockTimestamp, in_list
from jobs.billing.charges import money_text
from jobs.billing.models.account import Account


def money_field(**options: Any) -> models.DecimalField:
    """numeric(38, 18): exact for every currency, also those counted in 10^-18."""
    return models.DecimalField(max_digits=38, decimal_places=18, **options)


class TransactionKind(models.TextChoices):
    TOP_UP = "top_up", "top-up"
    CAPTURE = "capture", "capture"


class Book(models.TextChoices):
    """Whose side of the ledger: one account's, what the site earned, or the world outside it."""

    ACCOUNT = "account", "account"
    REVENUE = "revenue", "site revenue"
    OUTSIDE = "outside", "outside"


class AppendOnly(models.QuerySet[Any]):
    """Rows that can only be added."""

    def update(self, **fields: Any) -> NoReturn:
        """Refused."""
        raise TypeError("the ledger is append-only: post a transaction that corrects it")

    def delete(self) -> NoReturn:
        """Refused."""
        raise TypeError("the ledger is append-only: post a transaction that corrects it")


class LedgerRow(models.Model):
    """Base of what is never changed or removed."""

    objects = AppendOnly.as_manager()

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def save(self, *arguments: Any, **options: Any) -> None:
        """Inserts; raises TypeError for a row that is there already."""
        if not self._state.adding:
            raise TypeError("the ledger is append-only: post a transaction that corrects it")
        super().save(*arguments, **{**options, "force_insert": True})

    def delete(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused."""
        raise TypeError("the ledger is append-only: post a transaction that corrects it")


class LedgerTransaction(LedgerRow):
    """One movement of money in one currency. Its entries sum to zero. Only `jobs.billing.ledger` writes it."""

    kind = models.CharField(max_length=16, choices=TransactionKind)
    currency = models.CharField(max_length=128)
    reference = models.CharField(
        max_length=255, help_text="Names it; the same reference is never posted twice."
    )
    job = models.OneToOneField("jobs.Job", on_delete=models.PROTECT, null=True, related_name="capture")
    posted_by = models.CharField(max_length=150, blank=True, help_text="Who asked for it; empty = the site.")
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta(LedgerRow.Meta):
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="ledger_transaction_kind_known", condition=in_list("kind", TransactionKind.values)
            ),
            models.CheckConstraint(
                name="ledger_transaction_named", condition=~Q(reference="") & ~Q(currency="")
            ),
            models.CheckConstraint(
                name="ledger_transaction_job_exactly_when_capture",
                condition=Q(kind="capture", job__isnull=False) | ~Q(kind="capture") & Q(job__isnull=True),
            ),
            models.UniqueConstraint(fields=["kind", "reference"], name="ledger_transaction_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.reference}"


class LedgerEntry(LedgerRow):
    """One line of a transaction: positive = this side has more afterwards."""

    transaction = models.ForeignKey(LedgerTransaction, on_delete=models.PROTECT, related_name="entries")
    book = models.CharField(max_length=16, choices=Book)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, null=True, related_name="entries")
    amount = money_field()

    class Meta(LedgerRow.Meta):
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(name="ledger_entry_book_known", condition=in_list("book", Book.values)),
            models.CheckConstraint(
                name="ledger_entry_account_exactly_in_its_book",
                condition=Q(book="account", account__isnull=False)
                | ~Q(book="account") & Q(account__isnull=True),
            ),
            models.CheckConstraint(name="ledger_entry_not_zero", condition=~Q(amount=0)),
            models.UniqueConstraint(fields=["transaction", "account"], name="ledger_entry_once_per_account"),
            models.UniqueConstraint(
                fields=["transaction", "book"],
                condition=Q(account__isnull=True),
                name="ledger_entry_once_per_side",
            ),
        ]
        indexes = [models.Index(fields=["account", "-id"], name="ledger_entry_by_account")]

    def __str__(self) -> str:
        return f"{money_text(self.amount)} {self.book}"


class Balance(models.Model):
    """What an account has in one currency: the sum of its entries, and what of it its open holds set aside.

    Changed under the account's lock, in the transaction that changes entries or holds. The site's own sides have no
    such row: every job would wait for it; their balance is the sum of their entries.
    """

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="balances")
    currency = models.CharField(max_length=128)
    amount = money_field(default=0, help_text="Sum of the account's entries.")
    held = money_field(default=0, help_text="Sum of its open holds.")

    class Meta:
        ordering = ["currency"]
        constraints = [
            models.UniqueConstraint(fields=["account", "currency"], name="balance_once_per_currency"),
            models.CheckConstraint(
                name="balance_covers_holds", condition=Q(held__gte=0) & Q(amount__gte=F("held"))
            ),
        ]

    def __str__(self) -> str:
        return f"{money_text(self.amount)} {self.currency}"
