"""`manage.py create_token USER`: print a new token, once."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from compute_site.core.models import save_clean
from compute_site.core.scopes import USUAL, Scope
from jobs.billing.models import Account, Membership, Role
from jobs.tokens import make_token

MOST_DAYS = 3660


class Command(BaseCommand):
    help = "Print a new API token of a user. It is stored hashed and never shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="name of the user")
        parser.add_argument(
            "--account", help="make the user a member of this account (made when it does not exist)"
        )
        parser.add_argument(
            "--create", action="store_true", help="make the user, without a password, if there is none"
        )
        parser.add_argument(
            "--scope",
            action="append",
            choices=Scope.values,
            help=f"what it may be used for, may be given several times (default: {' and '.join(USUAL)})",
        )
        parser.add_argument("--name", default="", help="what it is for, shown in the admin")
        parser.add_argument("--days", type=int, help="how long it is good for (default: for ever)")

    def handle(self, *args: Any, **options: Any) -> None:
        days = options["days"]
        if days is not None and not 1 <= days <= MOST_DAYS:
            raise CommandError(f"--days: found {days}; enter 1 to {MOST_DAYS}.")
        lifetime = None if days is None else timedelta(days=days)
        with transaction.atomic():
            try:
                user = _user(options["user"], create=options["create"])
                if options["account"]:
                    _join(user, options["account"])
                _, token = make_token(
                    user, options["scope"] or USUAL, name=options["name"], lifetime=lifetime
                )
            except ValidationError as error:
                raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(token)


def _join(user: Any, name: str) -> None:
    """Raises ValidationError for what is no name of an account."""
    account = Account.objects.filter(name=name).first() or save_clean(Account(name=name))
    Membership.objects.get_or_create(account=account, user=user, defaults={"role": Role.OWNER})


def _user(name: str, *, create: bool) -> Any:
    users = get_user_model()
    found = users.objects.filter(username=name).first()
    if found is not None:
        return found
    if not create:
        raise CommandError(f"There is no user {name}; --create makes one.")
    user = users(username=name)
    user.set_unusable_password()
    return save_clean(user)
