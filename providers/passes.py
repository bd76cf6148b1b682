"""What the periodic passes share: one account after the other, each pass of an account once at a time."""

import logging
from collections.abc import Callable

from compute_site.core.db import advisory_lock
from compute_site.core.errors import SiteError
from providers.models import FINAL, Pod, ProviderAccount

log = logging.getLogger(__name__)


def per_account(name: str, action: Callable[[ProviderAccount], None]) -> None:
    """Run the pass for every account that has a key; one that fails is told and stops no other.

    Two processes never do the same pass of the same account at once: the second leaves it out.
    """
    for account in ProviderAccount.objects.exclude(sealed_key="").order_by("pk"):
        with advisory_lock(f"providers.{name}.{account.pk}") as held:
            if held:
                _one(account, action)


def _one(account: ProviderAccount, action: Callable[[ProviderAccount], None]) -> None:
    try:
        action(account)
    except SiteError as error:
        trouble(account, str(error))
    except Exception as error:
        # A fault of ours with one account must not keep the pods of the others alive.
        log.exception("account %s", account)
        trouble(account, f"a fault of ours: {type(error).__name__}")


def trouble(account: ProviderAccount, text: str) -> None:
    """Store why the last look failed."""
    log.warning("account %s: %s", account, text)
    ProviderAccount.objects.filter(pk=account.pk).update(trouble=text[:500])


def live_pods(account: ProviderAccount) -> list[Pod]:
    """Every pod of the account that is not final, as of now."""
    return list(Pod.objects.filter(account=account).exclude(status__in=FINAL).order_by("pk"))
