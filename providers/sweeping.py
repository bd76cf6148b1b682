"""Orphans: pods at a provider that carry our name and that no live row knows."""

import re
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F

from compute_site.core.db import database_now
from compute_site.core.errors import SiteError
from providers.base import Instance, Provider
from providers.creation import CONFIRMATIONS
from providers.models import FINAL, Orphan, Pod, ProviderAccount
from providers.passes import per_account
from providers.vendors import connected

GRACE = timedelta(seconds=120)


def sweep_orphans(*, now: datetime | None = None) -> None:
    """Note, and after the grace terminate, what is ours and unknown; every account. Safe to repeat and to die in."""
    now = now or database_now()
    per_account("orphans", lambda account: sweep_account(account, now))


def sweep_account(account: ProviderAccount, now: datetime) -> None:
    """The same for one account. Raises SiteError when there is no good listing: nothing is judged then."""
    with connected(account) as provider:
        # The listing before the rows: a row is committed before its pod exists, so it is there when we look.
        listing = provider.list_instances()
        # Of every account: two of ours may be one at the provider.
        pods = list(Pod.objects.exclude(status__in=FINAL))
        strays = {instance.id: instance for instance in listing if _is_stray(instance, pods)}
        for instance in strays.values():
            Orphan.objects.get_or_create(
                account=account,
                provider_id=instance.id,
                gone_at=None,
                defaults={
                    "name": instance.name[:100],
                    "price_per_hour": instance.price_per_hour,
                    "first_seen_at": now,
                },
            )
        there = {instance.id for instance in listing}
        for orphan in Orphan.objects.filter(account=account, gone_at=None):
            if orphan.provider_id in strays:
                _terminate(orphan, provider, now)
            else:
                _absent(orphan, now, adopted=orphan.provider_id in there)


def _is_stray(instance: Instance, pods: list[Pod]) -> bool:
    """Ours by its name, and neither a live row's own nor one that was there before a row of the same name asked."""
    if not re.fullmatch(rf"{re.escape(settings.SITE_ID)}-[0-9a-f]{{18}}", instance.name):
        return False
    for pod in pods:
        if pod.provider_id == instance.id:
            return False
        if pod.name == instance.name and (not pod.provider_id or instance.id in pod.known_ids):
            return False
    return True


def _terminate(orphan: Orphan, provider: Provider, now: datetime) -> None:
    changes = {"absent_answers": 0, "last_error": ""}
    if orphan.first_seen_at + GRACE <= now:
        changes["terminate_calls"] = F("terminate_calls") + 1
        try:
            provider.terminate(orphan.provider_id)
        except SiteError as error:
            changes["last_error"] = str(error)[:500]
    Orphan.objects.filter(pk=orphan.pk).update(**changes)


def _absent(orphan: Orphan, now: datetime, *, adopted: bool) -> None:
    absent = orphan.absent_answers + 1
    gone = now if adopted or absent >= CONFIRMATIONS else None
    Orphan.objects.filter(pk=orphan.pk).update(absent_answers=absent, gone_at=gone)
