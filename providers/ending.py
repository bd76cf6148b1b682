"""Ending pods: asked once, pursued until three good listings in a row lacked it."""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from compute_site.core.db import database_now, lock_one
from compute_site.core.errors import SiteError
from providers.base import Provider
from providers.budgets import cost_so_far, periods, plain, spent
from providers.errors import RateLimited
from providers.models import LISTED, Pod, PodStatus, ProviderAccount
from providers.passes import live_pods, per_account
from providers.transitions import move_pod, record
from providers.vendors import connected

log = logging.getLogger(__name__)
S = PodStatus
FIRST_PAUSE, LONGEST_PAUSE = 10, 600  # Seconds between two DELETEs.
NO_LONGER = frozenset({S.TERMINATING, S.TERMINATED, S.FAILED})


def ask_end(pod: Pod, reason: str, *, now: datetime | None = None) -> Pod:
    """Have the pod ended; repeating changes nothing. The first reason stays. Returns it fresh.

    intent → failed; provisioning, running, unknown → terminating; while requested only noted: what arrives is ended.
    """
    now = now or database_now()
    with transaction.atomic():
        pod = lock_one(Pod.objects.filter(pk=pod.pk))
        if pod.status == S.INTENT:
            move_pod(pod, S.FAILED, end_reason=reason, end_asked_at=now)
        elif pod.status == S.REQUESTED and pod.end_asked_at is None:
            Pod.objects.filter(pk=pod.pk).update(end_asked_at=now, end_reason=reason)
            record(pod.pk, "end_asked", reason)
        elif pod.status not in NO_LONGER | {S.REQUESTED}:
            terminate(pod, pod.end_reason or reason, now)
    pod.refresh_from_db()
    return pod


def terminate(pod: Pod, reason: str, now: datetime, *, message: str = "", **fields: Any) -> bool:
    """→ terminating, to be pursued from now on."""
    return move_pod(
        pod,
        S.TERMINATING,
        message=message or reason,
        end_reason=reason,
        end_asked_at=pod.end_asked_at or now,
        terminate_after=now,
        absent_answers=0,
        **fields,
    )


def check_pod_terminations(*, now: datetime | None = None) -> None:
    """End what is due (deadline, account, budget) and repeat DELETE for whatever is still there."""
    now = now or database_now()
    per_account("terminations", lambda account: check_account(account, now))


def check_account(account: ProviderAccount, now: datetime) -> None:
    """The same for one account. Pods without an id are ended by their listing (`providers.observing`)."""
    over = any(spent(account, start, now) > cap for _, start, cap in periods(account, now))
    for pod in live_pods(account):
        if reason := _why(pod, account, over, now):
            ask_end(pod, reason, now=now)
    due = [
        pod
        for pod in live_pods(account)
        if pod.status == S.TERMINATING and (pod.terminate_after is None or pod.terminate_after <= now)
    ]
    if not due:
        return
    with connected(account) as provider:
        for pod in due:
            _pursue(pod, provider, now)


def _why(pod: Pod, account: ProviderAccount, over: bool, now: datetime) -> str:
    if pod.status == S.TERMINATING:
        return ""
    if pod.end_asked_at is not None:
        return pod.end_reason if pod.status in LISTED else ""
    if pod.deadline is not None and pod.deadline <= now:
        return "deadline"
    if not account.enabled:
        return "account_disabled"
    return "budget" if over and pod.status != S.INTENT else ""


def _pursue(pod: Pod, provider: Provider, now: datetime) -> None:
    """One DELETE, whatever came of earlier ones; its answer proves nothing."""
    pause = min(FIRST_PAUSE * 2 ** min(pod.terminate_calls, 10), LONGEST_PAUSE)
    problem = ""
    if pod.provider_id:
        try:
            provider.terminate(pod.provider_id)
        except SiteError as error:
            problem = str(error)
            pause = max(pause, int(error.wait)) if isinstance(error, RateLimited) else pause
    Pod.objects.filter(pk=pod.pk).update(
        terminate_calls=F("terminate_calls") + (1 if pod.provider_id else 0),
        terminate_after=now + timedelta(seconds=pause),
        last_error=problem[:500],
    )
    asked = pod.end_asked_at or now
    if pod.alarm_at is None and now - asked > timedelta(seconds=settings.PROVIDER_ALARM_SECONDS):
        Pod.objects.filter(pk=pod.pk, alarm_at=None).update(alarm_at=now)
        record(pod.pk, "alarm", f"It does not die; up to {plain(cost_so_far(pod, now))} USD so far.")
        log.error("pod %s at %s does not die", pod.name, pod.account)
