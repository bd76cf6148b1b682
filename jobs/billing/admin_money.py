"""Money for the operator: to look at, and to top up. Nothing of the ledger is changed by hand."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget

from compute_site.core.admin import ReadOnlyAdmin
from compute_site.core.models import new_public_id
from compute_site.core.showing import DASH, ago, link, table, when
from jobs.billing.charges import EXACT, money_text
from jobs.billing.ledger import DEFAULT_CURRENCY
from jobs.billing.models import Account, Hold, HoldStatus, LedgerTransaction

SHOWN = 50  # rows on an account's page
HOLD_COLOURS = {HoldStatus.OPEN: "info", HoldStatus.CAPTURED: "success", HoldStatus.RELEASED: "default"}


class TopUpForm(BaseDialogForm):
    """What an operator says of a payment made outside the site."""

    amount = forms.DecimalField(
        max_digits=38,
        decimal_places=18,
        min_value=Decimal("1e-18"),
        widget=UnfoldAdminTextInputWidget,
        help_text="Above 0, at most 18 decimals.",
    )
    currency = forms.CharField(
        max_length=128,
        initial=DEFAULT_CURRENCY,
        widget=UnfoldAdminTextInputWidget,
        help_text="As in the price lists.",
    )
    reference = forms.CharField(
        max_length=255,
        initial=new_public_id,
        widget=UnfoldAdminTextInputWidget,
        help_text="Names this payment, e.g. a receipt's number. The same reference tops up once.",
    )


def balances(account: Account) -> SafeString | str:
    """What the account has, by currency."""
    rows = (
        (row.currency, *map(money_text, (row.amount, row.held, EXACT.subtract(row.amount, row.held))))
        for row in account.balances.all()
    )
    return table(["currency", "has", "held", "free"], rows)


def entries(account: Account) -> SafeString | str:
    """The account's last ledger entries."""
    rows = account.entries.select_related("transaction__job")[:SHOWN]
    return table(
        ["when", "what", "amount", "currency", "reference", "by"],
        (
            (
                ago(row.transaction.created_at),
                row.transaction.get_kind_display(),
                money_text(row.amount),
                row.transaction.currency,
                link(row.transaction.job) if row.transaction.job else row.transaction.reference,
                row.transaction.posted_by or DASH,
            )
            for row in rows
        ),
    )


def open_holds(account: Account) -> SafeString | str:
    """What is set aside for jobs that have not ended."""
    rows = account.holds.filter(status=HoldStatus.OPEN).select_related("job")[:SHOWN]
    return table(
        ["job", "state", "amount", "currency", "since"],
        (
            (link(row.job), row.job.status, money_text(row.amount), row.currency, ago(row.created_at))
            for row in rows
        ),
    )


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    """Holds, of all accounts."""

    list_display = [
        *("name", "account", "state", "held", "paid", "currency"),
        *(when("created_at", "since"), when("ended_at")),
    ]
    list_filter = ["status", "currency"]
    list_select_related = ["job", "account"]
    search_fields = ["job__public_id", "account__name"]
    fields = ["job", *list_display[1:]]
    readonly_fields = fields

    @display(description="hold for job", ordering="pk")
    def name(self, hold: Hold) -> str:
        return hold.job.short_id

    @display(description="state", ordering="status", label=HOLD_COLOURS)
    def state(self, hold: Hold) -> str:
        return hold.status

    @display(description="held", ordering="amount")
    def held(self, hold: Hold) -> str:
        return money_text(hold.amount)

    @display(description="paid", ordering="captured")
    def paid(self, hold: Hold) -> str:
        return money_text(hold.captured)


@admin.register(LedgerTransaction)
class LedgerTransactionAdmin(ReadOnlyAdmin):
    """The ledger: every movement with its entries, which sum to zero."""

    list_display = ["what", "kind", "moved", "currency", "accounts", "by", when("created_at", "when")]
    list_select_related = ["job"]
    list_filter = ["kind", "currency"]
    search_fields = ["reference", "entries__account__name"]
    fields = ["reference", "kind", "currency", "job", "by", when("created_at", "when"), "sides"]
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("entries__account")

    @display(description="what", ordering="pk")
    def what(self, row: LedgerTransaction) -> str:
        return f"job {row.job.short_id}" if row.job else row.reference

    @display(description="accounts")
    def accounts(self, row: LedgerTransaction) -> str:
        return ", ".join(str(entry.account) for entry in row.entries.all() if entry.account)

    @display(description="by", ordering="posted_by")
    def by(self, row: LedgerTransaction) -> str:
        return row.posted_by or "the site"

    @display(description="amount")
    def moved(self, row: LedgerTransaction) -> str:
        return money_text(max(entry.amount for entry in row.entries.all()))

    @display(description="entries")
    def sides(self, row: LedgerTransaction) -> SafeString | str:
        rows = (
            (entry.get_book_display(), link(entry.account), money_text(entry.amount))
            for entry in row.entries.all()
        )
        return table(["side", "account", "amount"], rows)
