"""The most jobs that one account may run at once, wherever they run."""

from django.conf import settings
from django.db.models import Count, QuerySet

from compute_site.core.db import first_row
from compute_site.core.errors import CapacityUnavailable
from jobs.models import Job
from jobs.models.job import ACTIVE


def full_accounts() -> QuerySet[Job, int]:
    """Keys of the accounts that run as many jobs as they may."""
    running = Job.objects.filter(status__in=sorted(ACTIVE)).order_by().values("account")
    full = running.annotate(jobs=Count("pk")).filter(jobs__gte=settings.MAX_RUNNING_JOBS_PER_ACCOUNT)
    return full.values_list("account", flat=True)


def running_jobs(account_id: int) -> int:
    """How many jobs of the account hold something of a machine now."""
    return Job.objects.filter(account=account_id, status__in=sorted(ACTIVE)).count()


def account_reason(account_id: int) -> str:
    """That the account runs as many jobs as it may, in words; empty when it does not."""
    running, most = running_jobs(account_id), settings.MAX_RUNNING_JOBS_PER_ACCOUNT
    return f"{running} of at most {most} jobs of the account run" if running >= most else ""


def check_account(account_id: int) -> None:
    """Count the jobs of the account with nobody else counting: engines of several hosts, and the fleet, start jobs at
    the same time, and no row that they lock is the same. To be called in the transaction that starts a job of it; kept
    until that ends. Raises CapacityUnavailable."""
    first_row("SELECT pg_advisory_xact_lock(hashtextextended('account jobs', %s))", [account_id])
    if reason := account_reason(account_id):  # a new statement: sees what the one before us has committed
        raise CapacityUnavailable(reason, resource="account")
