"""What pods have committed an account to. Always counted upwards: a pod that cannot be judged costs its cap."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Q, QuerySet

from compute_site.core.db import require_transaction
from providers.errors import CostGuardrailError
from providers.models import FINAL, Pod, PodStatus, ProviderAccount

HOUR = Decimal(3600)


class BudgetExceeded(CostGuardrailError):
    """The account's caps do not allow one more pod like this."""

    code = "budget_exceeded"


def check_budget(account: ProviderAccount, cost: Decimal, now: datetime) -> None:
    """Raises BudgetExceeded unless a pod of that committed cost in USD fits. The account's row is locked."""
    require_transaction()
    live = Pod.objects.filter(account=account).exclude(status__in=FINAL).count()
    if live >= account.max_pods:
        raise BudgetExceeded(f"{live} of {account.max_pods} pods live already.")
    for word, start, cap in periods(account, now):
        taken = committed(account, start, now)
        if taken + cost > cap:
            raise BudgetExceeded(
                f"The {word} cap is {plain(cap)} USD, {plain(taken)} are committed; this pod needs {plain(cost)}."
            )


def periods(account: ProviderAccount, now: datetime) -> list[tuple[str, datetime, Decimal]]:
    """Name, start and cap of the two periods, in UTC."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [("daily", day, account.daily_cap), ("monthly", day.replace(day=1), account.monthly_cap)]


def committed(account: ProviderAccount, since: datetime, now: datetime) -> Decimal:
    """USD that live pods may cost until their deadline, and that those ended since then can have cost."""
    return _committed(_counted([account], since), now)


def spent(account: ProviderAccount, since: datetime, now: datetime) -> Decimal:
    """USD that pods can have cost so far, of all that lived since then."""
    return _spent(_counted([account], since), now)


@dataclass(frozen=True, slots=True)
class Figures:
    """One period of an account: its cap, and what its pods have committed and can have cost, in USD."""

    cap: Decimal
    committed: Decimal
    spent: Decimal


def figures(accounts: Sequence[ProviderAccount], now: datetime) -> dict[int, list[Figures]]:
    """Today's and this month's figures, by the account's key; one statement for all of them."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found: dict[int, list[Figures]] = {account.pk: [] for account in accounts}
    pods = list(_counted(accounts, month))
    for account in accounts:
        for _, start, cap in periods(account, now):
            own = [pod for pod in pods if pod.account_id == account.pk and _lived(pod, start)]
            found[account.pk].append(Figures(cap, _committed(own, now), _spent(own, now)))
    return found


def _counted(accounts: Sequence[ProviderAccount], since: datetime) -> QuerySet[Pod]:
    pods = Pod.objects.filter(account__in=accounts).exclude(status=PodStatus.FAILED)
    return pods.filter(Q(finished_at__isnull=True) | Q(finished_at__gte=since))


def _lived(pod: Pod, since: datetime) -> bool:
    return pod.finished_at is None or pod.finished_at >= since


def _committed(pods: Iterable[Pod], now: datetime) -> Decimal:
    return sum((_bound(pod, now) for pod in pods), Decimal(0))


def _spent(pods: Iterable[Pod], now: datetime) -> Decimal:
    return sum((cost_so_far(pod, now) for pod in pods), Decimal(0))


def cost_so_far(pod: Pod, now: datetime) -> Decimal:
    """The most that it can have cost: from the request on, at the cap or at what the provider says, if that is more."""
    if pod.requested_at is None or pod.status == PodStatus.FAILED:
        return Decimal(0)
    lasted = max((pod.finished_at or now) - pod.requested_at, timedelta(0))
    return hourly_rate(pod) * Decimal(str(lasted.total_seconds())) / HOUR


def hourly_rate(pod: Pod) -> Decimal:
    """USD per hour that it can cost: its cap, or what the provider says, if that is more."""
    return max(pod.allowed_per_hour, pod.price_per_hour or Decimal(0))


def plain(amount: Decimal) -> str:
    """USD for people: no exponent, no zeros at the end."""
    text = f"{amount:.6f}".rstrip("0").rstrip(".")
    return text or "0"


def _bound(pod: Pod, now: datetime) -> Decimal:
    if pod.is_final:
        return cost_so_far(pod, now)
    return max(pod.committed_cost, cost_so_far(pod, now))
