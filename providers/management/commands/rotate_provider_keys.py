"""`manage.py rotate_provider_keys`: seal every provider's key anew under the ring's first key."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from providers import keys
from providers.models import ProviderAccount


class Command(BaseCommand):
    help = "Seal every provider's key anew under the first key of PROVIDER_KEY_RING; older ones may go then."

    def handle(self, *args: Any, **options: Any) -> None:
        failed = []
        for account in ProviderAccount.objects.exclude(sealed_key=""):
            if keys.is_current(account.sealed_key):
                continue
            try:
                account.set_key(account.open_key())
            except keys.KeyUnreadable:
                failed.append(account.name)
        if failed:
            raise CommandError(f"Not opened, enter their keys again: {', '.join(failed)}")
        if options["verbosity"]:
            self.stdout.write("all keys are sealed under the first key of the ring")
