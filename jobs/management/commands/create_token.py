"""`manage.py create_token USER`: print a new token, once."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from knox.models import get_token_model

from jobs.billing.models import Account, Membership, Role


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

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            user = _user(options["user"], create=options["create"])
            if options["account"]:
                account, _ = Account.objects.get_or_create(name=options["account"])
                Membership.objects.get_or_create(account=account, user=user, defaults={"role": Role.OWNER})
            _, token = get_token_model().objects.create(user=user)
        self.stdout.write(token)


def _user(name: str, *, create: bool) -> Any:
    users = get_user_model()
    found = users.objects.filter(username=name).first()
    if found is not None:
        return found
    if not create:
        raise CommandError(f"There is no user {name}; --create makes one.")
    user = users(username=name)
    user.set_unusable_password()
    user.full_clean()
    user.save()
    return user
