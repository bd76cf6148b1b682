"""Renting: the row first, then one claimed call, and whatever came of it into the row."""

import uuid
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from compute_site.core.db import database_now, lock_one
from compute_site.core.errors import IdempotencyConflict, SiteError
from compute_site.core.models import new_public_id
from providers import ending
from providers.base import Instance, InstanceSpec, Provider
from providers.budgets import check_budget
from providers.errors import CostGuardrailError, OutcomeUnknown, ProviderError, SoldOut
from providers.guardrails import checked
from providers.knocks import knock
from providers.models import Pod, PodStatus, ProviderAccount
from providers.transitions import move_pod, record
from providers.vendors import connected, has_own_clock

WAIT = timedelta(minutes=30)  # How long an intent may wait for something to be on offer.
PAUSE = timedelta(seconds=30)
S = PodStatus


def ask(
    account: ProviderAccount,
    wanted: dict[str, Any],
    *,
    user: Any = None,
    request_key: str = "",
    now: datetime | None = None,
) -> tuple[Pod, bool]:
    """Write the intent to rent and knock; the pod, and whether it is new (False: the same key asked before).

    `wanted` holds fields of `InstanceSpec` without the name. Every rule of cost is checked here, before any call.
    Raises CostGuardrailError, IdempotencyConflict; nothing was written then.
    """
    public_id = new_public_id()
    name = f"{settings.SITE_ID}-{public_id.hex[-18:]}"
    spec = checked(InstanceSpec(name=name, **wanted))
    cost = spec.max_price_per_hour * spec.gpu_count * spec.max_lifetime_hours
    with transaction.atomic():
        account = lock_one(ProviderAccount.objects.filter(pk=account.pk))
        if request_key and (earlier := Pod.objects.filter(account=account, request_key=request_key).first()):
            if {**_stored(spec), "name": ""} != {**earlier.spec, "name": ""}:
                raise IdempotencyConflict("This idempotency key came with another request before.")
            return earlier, False
        _check_account(account)
        check_budget(account, cost, now or database_now())
        pod = Pod.objects.create(
            public_id=public_id,
            account=account,
            name=name,
            spec=_stored(spec),
            gpu_count=spec.gpu_count,
            price_cap=spec.max_price_per_hour,
            lifetime_hours=spec.max_lifetime_hours,
            committed_cost=cost,
            request_key=request_key,
            requested_by=user,
        )
        record(pod.pk, S.INTENT)
        transaction.on_commit(lambda: knock("providers.rent_pod", pod.pk))
    return pod, True


def _check_account(account: ProviderAccount) -> None:
    if not account.enabled:
        raise CostGuardrailError("The account is switched off; switch it on in the admin.")
    if not account.has_key:
        raise CostGuardrailError("The account has no key; enter one in the admin.")
    if not (has_own_clock(account) or account.accepts_no_provider_clock):
        raise CostGuardrailError(
            "This provider ends nothing by itself; the account has to accept that only this site bounds a pod's life."
        )


def _stored(spec: InstanceSpec) -> dict[str, Any]:
    fields = asdict(spec)
    return {**fields, "max_price_per_hour": str(spec.max_price_per_hour), "ports": list(spec.ports),
            "ssh_keys": list(spec.ssh_keys)}  # fmt: skip


def spec_of(pod: Pod) -> InstanceSpec:
    """The spec as it was checked."""
    stored = pod.spec
    return InstanceSpec(
        **{
            **stored,
            "max_price_per_hour": Decimal(stored["max_price_per_hour"]),
            "ports": tuple(stored["ports"]),
            "ssh_keys": tuple(stored["ssh_keys"]),
        }
    )


def rent_due(*, now: datetime | None = None) -> None:
    """Try every intent whose time has come: a lost knock costs one period."""
    now = now or database_now()
    for pod_id in Pod.objects.filter(status=S.INTENT).order_by("pk").values_list("pk", flat=True):
        rent(pod_id, now=now)


def rent(pod_id: int, *, now: datetime | None = None) -> None:
    """intent → requested → provisioning, or what the refusal means. Safe to call twice at once."""
    now = now or database_now()
    pod = Pod.objects.select_related("account").get(pk=pod_id)
    if pod.status != S.INTENT or (pod.not_before and pod.not_before > now):
        return
    if pod.created_at + WAIT <= now or not pod.account.enabled:
        reason = "waited_too_long" if pod.account.enabled else "account_disabled"
        move_pod(pod, S.FAILED, end_reason=reason, message=pod.last_error, sources={S.INTENT})
        return
    try:
        with connected(pod.account) as provider:
            _rent(pod, provider, now)
    except SiteError as error:  # Before the claim: the intent stays.
        Pod.objects.filter(pk=pod.pk, status=S.INTENT).update(
            not_before=now + PAUSE, last_error=str(error)[:500]
        )


def _rent(pod: Pod, provider: Provider, now: datetime) -> None:
    known = [instance.id for instance in provider.list_instances()]
    claimed = move_pod(
        pod,
        S.REQUESTED,
        known_ids=known,
        idempotency_key=str(uuid.uuid4()),
        requested_at=now,
        deadline=now + timedelta(hours=pod.lifetime_hours),
        tries=F("tries") + 1,
        last_error="",
    )
    if not claimed:
        return
    try:
        instance = provider.provision(spec_of(pod), pod.idempotency_key)
        _check_new(pod, instance.id)
    except ProviderError as error:
        _refused(pod, error, now)
    except Exception as error:
        move_pod(pod, S.UNKNOWN, message=f"a fault of ours: {type(error).__name__}")
        raise
    else:
        arrived(pod, instance, now)


def _check_new(pod: Pod, instance_id: str) -> None:
    """An id that existed before, or that another row has, is not what was just rented."""
    if (
        instance_id in pod.known_ids
        or Pod.objects.filter(account=pod.account, provider_id=instance_id).exists()
    ):
        raise OutcomeUnknown("the answer to the rent names a pod that existed before")


def _refused(pod: Pod, error: ProviderError, now: datetime) -> None:
    """After a rent that failed: what may exist is pursued, what surely does not is over."""
    told: dict[str, Any] = {"message": str(error), "last_error": str(error)[:500]}
    if error.instance_id and error.instance_id not in pod.known_ids:
        ending.terminate(pod, error.code, now, provider_id=error.instance_id, **told)
    elif error.instance_id or isinstance(error, OutcomeUnknown):
        move_pod(pod, S.UNKNOWN, **told)
    elif not (isinstance(error, SoldOut) and _wait_on(pod, now + PAUSE, told)):
        move_pod(pod, S.FAILED, end_reason=pod.end_reason or error.code, **told)


def _wait_on(pod: Pod, until: datetime, told: dict[str, Any]) -> bool:
    """Nothing was created: back to intent, unless its end was asked meanwhile."""
    unasked = Q(end_asked_at__isnull=True)
    return move_pod(pod, S.INTENT, guard=unasked, requested_at=None, deadline=None, not_before=until, **told)


def arrived(pod: Pod, instance: Instance, now: datetime) -> None:
    """requested or unknown → provisioning, with the provider's id; on to terminating if its end was asked meanwhile."""
    facts: dict[str, Any] = {
        "provider_id": instance.id,
        "price_per_hour": instance.price_per_hour,
        "told": instance.told[:64],
    }
    if move_pod(pod, S.PROVISIONING, message=instance.id, **facts):
        if pod.end_asked_at is not None:
            ending.ask_end(pod, pod.end_reason, now=now)
        return
    # It was given up meanwhile: now there is something to terminate.
    late = Pod.objects.filter(pk=pod.pk, status=S.TERMINATING, provider_id="")
    if late.update(**facts, absent_answers=0, terminate_after=None):
        record(pod.pk, "arrived_late", instance.id)
