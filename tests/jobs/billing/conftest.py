"""What the money tests look at."""

from decimal import Decimal

import pytest
from django.db.models import Sum

from jobs.billing.models import Account, Balance, LedgerEntry
from tests.factories import make_account
from workers.fsck import row_disagreements


class Books:
    """One account's money in credit, and whether everything adds up."""

    def __init__(self, account: Account) -> None:
        self.account = account

    def now(self) -> tuple[Decimal, Decimal]:
        """What it has and what of it is held."""
        return Balance.objects.values_list("amount", "held").get(account=self.account, currency="credit")

    def check(self) -> None:
        """No disagreement of any kind; all entries of the site sum to zero."""
        assert LedgerEntry.objects.aggregate(total=Sum("amount"))["total"] == 0
        assert list(row_disagreements()) == []


@pytest.fixture
def account(user) -> Account:
    """The user's only account, with 100 credit."""
    return make_account("ada's", user, credit=Decimal(100))


@pytest.fixture
def books(account) -> Books:
    return Books(account)
