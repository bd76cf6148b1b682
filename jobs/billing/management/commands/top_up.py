"""`manage.py top_up ACCOUNT AMOUNT [CURRENCY] --reference TEXT`: money that was paid outside the site."""

from argparse import ArgumentParser
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from compute_site.core.errors import IdempotencyConflict
from jobs.billing.charges import money_text
from jobs.billing.ledger import DEFAULT_CURRENCY, top_up
from jobs.billing.models import Account


class Command(BaseCommand):
    help = "Top up an account. The same reference (a receipt's number, say) tops up once, however often it is sent."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("account", help="name or id of the account")
        parser.add_argument("amount", help="decimal number above 0")
        parser.add_argument("currency", nargs="?", default=DEFAULT_CURRENCY, help="default: credit")
        parser.add_argument("--reference", required=True, help="names this payment; never used for another")

    def handle(self, *args: Any, **options: Any) -> None:
        account = _account(options["account"])
        try:
            amount = Decimal(options["amount"])
            _, repeated = top_up(
                account, amount, options["currency"], reference=options["reference"], by="command line"
            )
        except InvalidOperation:
            raise CommandError(f"{options['amount']} is no decimal number.") from None
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        except IdempotencyConflict as error:
            raise CommandError(str(error)) from error
        balance = account.balances.get(currency=options["currency"])
        told = "was topped up before" if repeated else "topped up"
        self.stdout.write(f"{account} {told}; it has {money_text(balance.amount)} {balance.currency}.")


def _account(wanted: str) -> Account:
    condition = Q(name=wanted)
    with suppress(ValueError):
        condition |= Q(public_id=UUID(wanted))
    rows = list(Account.objects.filter(condition)[:2])
    if len(rows) != 1:
        raise CommandError(f"There is no account {wanted}." if not rows else f"{wanted} means two accounts.")
    return rows[0]
