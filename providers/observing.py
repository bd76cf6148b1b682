"""Observing: what the provider's listing says of each pod. Only a good listing says anything."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from compute_site.core.db import database_now
from compute_site.core.errors import SiteError
from providers import ending, renting
from providers.base import Instance, InstanceState, Provider
from providers.creation import CONFIRMATIONS
from providers.models import LISTED, Pod, PodStatus, ProviderAccount
from providers.passes import live_pods, per_account
from providers.transitions import move_pod
from providers.vendors import connected

S = PodStatus
REQUEST_LASTS = timedelta(minutes=10)  # Longer than any rent can take: whoever asked is dead.
CLOCK_TOLERANCE = timedelta(seconds=90)


def observe_pods(*, now: datetime | None = None) -> None:
    """One look at every account that has live pods. Safe to repeat and to die in."""
    now = now or database_now()
    per_account("observe", lambda account: observe_account(account, now))


def observe_account(account: ProviderAccount, now: datetime) -> None:
    """The same for one account. Raises SiteError when there is no good listing: then no pod is judged."""
    # The rows are read before the listing: a pod that arrives in between is not missing from it.
    pods = [pod for pod in live_pods(account) if pod.status != S.INTENT]
    for pod in pods:
        if pod.status == S.REQUESTED and pod.requested_at and pod.requested_at + REQUEST_LASTS <= now:
            move_pod(pod, S.UNKNOWN, message="whoever asked for it did not come back")
    if not pods:
        return
    with connected(account) as provider:
        listing = provider.list_instances()
        ProviderAccount.objects.filter(pk=account.pk).update(listed_at=now, trouble="")
        for pod in pods:
            found = find(pod, listing)
            if found is None:
                _missing(pod, now)
            else:
                _seen(pod, found, provider, now)


def find(pod: Pod, listing: list[Instance]) -> Instance | None:
    """The pod's instance: by its id, or by its name among the ids that are new since the request."""
    if pod.provider_id:
        return next((instance for instance in listing if instance.id == pod.provider_id), None)
    return next(
        (instance for instance in listing if instance.name == pod.name and instance.id not in pod.known_ids),
        None,
    )


def _missing(pod: Pod, now: datetime) -> None:
    """It may still show up after a lost answer; otherwise absence counts, and has to be said three times."""
    may_come = not pod.provider_id and pod.requested_at is not None and now < pod.requested_at + _grace()
    if may_come or pod.status == S.REQUESTED:
        return
    if pod.status == S.UNKNOWN:
        ending.ask_end(pod, "never_appeared", now=now)
        return
    absent = pod.absent_answers + 1
    same = Pod.objects.filter(pk=pod.pk, status=pod.status, absent_answers=pod.absent_answers)
    if not same.update(absent_answers=absent) or absent < CONFIRMATIONS:
        return
    if pod.status == S.TERMINATING:
        # Not if its id has come meanwhile: that one has not been looked for yet.
        same_id = Q(absent_answers=absent, provider_id=pod.provider_id)
        text = f"{absent} good listings lack it"
        move_pod(pod, S.TERMINATED, guard=same_id, message=text, terminate_after=None)
    elif pod.status in LISTED:
        ending.ask_end(pod, "vanished", now=now)


def _seen(pod: Pod, instance: Instance, provider: Provider, now: datetime) -> None:
    facts = {"seen_at": now, "told": instance.told[:64], "absent_answers": 0}
    if instance.price_per_hour is not None:
        facts["price_per_hour"] = instance.price_per_hour
    Pod.objects.filter(pk=pod.pk).update(**facts)
    if pod.status == S.UNKNOWN or (pod.status == S.TERMINATING and not pod.provider_id):
        renting.arrived(pod, instance, now)
    elif pod.status in LISTED:
        _judge(pod, instance, provider, now)


def _judge(pod: Pod, instance: Instance, provider: Provider, now: datetime) -> None:
    if instance.price_per_hour is not None and instance.price_per_hour > pod.allowed_per_hour:
        ending.ask_end(pod, "price_too_high", now=now)
    elif instance.status == InstanceState.ENDED:
        ending.ask_end(pod, "ended_at_provider", now=now)
    elif instance.status == InstanceState.RUNNING:
        if pod.status == S.PROVISIONING:
            move_pod(pod, S.RUNNING, running_at=now)
        _set_provider_clock(pod, instance, provider)


def _set_provider_clock(pod: Pod, instance: Instance, provider: Provider) -> None:
    """The provider may have set its own end anew at boot: it is corrected as long as it is later than ours."""
    assert pod.deadline is not None
    if not provider.has_own_clock:
        return
    if instance.ends_at is not None and instance.ends_at <= pod.deadline + CLOCK_TOLERANCE:
        return
    try:
        provider.bound_lifetime(pod.provider_id, pod.deadline)
    except SiteError as error:
        Pod.objects.filter(pk=pod.pk).update(last_error=str(error)[:500])


def _grace() -> timedelta:
    return timedelta(seconds=settings.PROVIDER_GRACE_SECONDS)
