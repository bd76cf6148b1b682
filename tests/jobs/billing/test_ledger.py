"""The ledger: append-only, summing to zero, topped up once for each reference."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from io import StringIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connections, transaction

from compute_site.core.errors import IdempotencyConflict
from jobs.billing.ledger import post, top_up
from jobs.billing.models import Balance, Book, LedgerEntry, LedgerTransaction, TransactionKind
from tests.factories import make_account


def rows() -> list:
    return [
        list(table.objects.order_by("pk").values()) for table in (LedgerTransaction, LedgerEntry, Balance)
    ]


def test_a_top_up_is_two_entries_and_a_balance(account, books):
    posted, repeated = top_up(account, Decimal("2.5"), reference="r", by="root")
    assert (posted.kind, posted.currency, posted.posted_by, posted.job, repeated) == (
        "top_up", "credit", "root", None, False,
    )  # fmt: skip
    entries = {(e.book, e.account_id): e.amount for e in posted.entries.all()}
    assert entries == {("account", account.pk): Decimal("2.5"), ("outside", None): Decimal("-2.5")}
    assert books.now() == (Decimal("102.5"), 0)
    books.check()


def test_no_digit_of_money_is_lost(account, books):
    large = Decimal("12345678901234567890.123456789012345678")
    top_up(account, large, "wei", reference="r")
    top_up(account, Decimal("1E-18"), "wei", reference="s")
    amount = Balance.objects.get(account=account, currency="wei").amount
    assert format(amount, "f") == "12345678901234567890.123456789012345679"
    assert books.now() == (100, 0)
    books.check()


def test_a_reference_tops_up_once(account, books):
    first, _ = top_up(account, Decimal(5), reference="r")
    second = make_account("second")
    before = rows()
    assert top_up(account, Decimal("5.00"), reference="r") == (first, True)
    for other in (
        (account, Decimal(6), "credit"),
        (account, Decimal(5), "euro"),
        (second, Decimal(5), "credit"),
    ):
        with pytest.raises(IdempotencyConflict):
            top_up(*other, reference="r")
    assert rows() == before
    books.check()


@pytest.mark.parametrize(
    ("amount", "currency", "reference", "field"),
    [
        ("0", "credit", "r", "amount"), ("-1", "credit", "r", "amount"), ("NaN", "credit", "r", "amount"),
        ("Infinity", "credit", "r", "amount"), ("1E-19", "credit", "r", "amount"), ("1E20", "credit", "r", "amount"),
        ("99999999999999999900", "credit", "r", "amount"), ("1", "", "r", "currency"), ("1", "credit", "", "reference"),
        ("1", "credit", "\x00", "reference"),
    ],
)  # fmt: skip
def test_what_is_no_top_up_is_refused(account, amount, currency, reference, field):
    before = rows()
    with pytest.raises(ValidationError) as caught:
        top_up(account, Decimal(amount), currency, reference=reference)
    assert list(caught.value.message_dict) == [field]
    assert rows() == before


def test_what_does_not_sum_to_zero_is_not_posted(account):
    before = rows()
    for sides in (
        [],
        [(Book.ACCOUNT, account, Decimal(1))],
        [(Book.ACCOUNT, account, Decimal(2)), (Book.OUTSIDE, None, Decimal(-1))],
    ):
        with pytest.raises(ValueError, match="sum to zero"), transaction.atomic():
            post(TransactionKind.TOP_UP, "credit", sides, reference="r")
    assert rows() == before


def test_a_balance_never_falls_below_what_is_held(account, books):
    before = rows()
    sides = [
        (Book.ACCOUNT, account, Decimal("-100.000000000000000001")),
        (Book.OUTSIDE, None, Decimal("100.000000000000000001")),
    ]
    with pytest.raises(IntegrityError, match="balance_covers_holds"), transaction.atomic():
        post(TransactionKind.TOP_UP, "credit", sides, reference="r")
    with pytest.raises(IntegrityError, match="balance_covers_holds"), transaction.atomic():
        Balance.objects.update(held=101)
    assert rows() == before


@pytest.mark.parametrize("table", [LedgerTransaction, LedgerEntry])
def test_what_is_written_stays(account, table):
    before = rows()
    row = table.objects.order_by("pk").first()
    for change in (row.save, row.delete, table.objects.all().delete, lambda: table.objects.update(id=5)):
        with pytest.raises(TypeError, match="append-only"):
            change()
    assert rows() == before


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"amount": 0}, "ledger_entry_not_zero"), ({"book": "else", "account": None}, "ledger_entry_book_known"),
        ({"account": None}, "ledger_entry_account_exactly_in_its_book"),
        ({"book": "outside"}, "ledger_entry_account_exactly_in_its_book"),
        ({}, "ledger_entry_once_per_account"),
        ({"book": "outside", "account": None}, "ledger_entry_once_per_side"),
    ],
)  # fmt: skip
def test_the_database_refuses_entries_that_make_no_sense(account, fields, constraint):
    before = rows()
    values = {
        "transaction": LedgerTransaction.objects.get(),
        "book": "account",
        "account": account,
        "amount": 1,
    }
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        LedgerEntry.objects.create(**{**values, **fields})
    assert rows() == before


def test_the_database_refuses_the_same_reference(account):
    with pytest.raises(IntegrityError, match="ledger_transaction_once"), transaction.atomic():
        LedgerTransaction.objects.create(kind="top_up", currency="credit", reference="for ada's")


def test_the_command_tops_up_once_and_says_so(account, books):
    told = StringIO()
    for _ in range(2):
        call_command("top_up", "ada's", "1.5", "--reference", "r", stdout=told)
    call_command("top_up", str(account.public_id), "2", "euro", "--reference", "s", stdout=told)
    assert told.getvalue().splitlines() == [
        "ada's topped up; it has 101.5 credit.",
        "ada's was topped up before; it has 101.5 credit.",
        "ada's topped up; it has 2 euro.",
    ]
    before = rows()
    for account_name, amount, reference in (
        ("bob", "1", "t"),
        ("ada's", "much", "t"),
        ("ada's", "-1", "t"),
        ("ada's", "9", "r"),
    ):
        with pytest.raises(CommandError):
            call_command("top_up", account_name, amount, f"--reference={reference}")
    assert rows() == before
    books.check()


@pytest.mark.django_db(transaction=True)
def test_a_reference_sent_many_times_at_once_tops_up_once(account, books):
    second = make_account("second")

    def send(number: int) -> str:
        try:
            return str(top_up((account, second)[number % 2], Decimal(7), reference="r")[0].pk)
        except IdempotencyConflict:
            return "conflict"
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(24)))
    assert answers.count("conflict") == 12
    assert len(set(answers)) == 2
    assert LedgerTransaction.objects.filter(reference="r").count() == 1
    books.check()
