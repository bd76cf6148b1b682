"""`manage.py prepare_pods_demo`: two accounts at the demo's imitated providers, and a member of the staff."""

import json
import os
from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from knox.models import get_token_model

from compute_site.core.models import save_clean
from compute_site.core.scopes import Scope
from providers.models import ProviderAccount, ProviderKind

STAFF = "operator"
TOKEN_LIFE = timedelta(days=1)


class Command(BaseCommand):
    help = "Prepare `./run demo --pods`. The accounts' keys come in LIUM_KEY and TARGON_KEY. May be repeated."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--lium", required=True, help="Address of the imitated Lium.")
        parser.add_argument("--targon", required=True, help="Address of the imitated Targon.")
        parser.add_argument("--output", type=Path, required=True, help="Where the token is written (JSON).")

    def handle(self, *args: Any, **options: Any) -> None:
        for kind in ProviderKind.values:
            key = os.environ.get(f"{kind.upper()}_KEY")
            if not key:
                raise CommandError(f"{kind.upper()}_KEY is not set.")
            provide_account(kind, options[kind]).set_key(key)
        output: Path = options["output"]
        output.unlink(missing_ok=True)  # Its mode is ours only if we make it.
        with os.fdopen(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump({"staff": STAFF, "token": provide_token()}, file)


def provide_account(kind: str, address: str) -> ProviderAccount:
    """The demo's account of that kind, now at that address. Raises ValidationError."""
    account = ProviderAccount.objects.filter(name=kind).first() or ProviderAccount(name=kind)
    account.kind, account.base_url, account.enabled = kind, address, True
    account.daily_cap, account.monthly_cap, account.max_pods = 50, 200, 5
    account.accepts_no_provider_clock = True
    return save_clean(account)


def provide_token() -> str:
    """A token for a day of a member of the staff; earlier ones are void."""
    user, created = get_user_model().objects.get_or_create(username=STAFF, defaults={"is_staff": True})
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    get_token_model().objects.filter(user=user).delete()
    tokens = get_token_model().objects
    return str(tokens.create(user=user, name="pods demo", scopes=[Scope.ADMIN.value], expiry=TOKEN_LIFE)[1])
