"""Rows that many tests start from, made through the same doors as everywhere else."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F
from rest_framework.test import APIClient

from compute_site.core.db import database_now
from compute_site.core.models import new_public_id
from compute_site.core.scopes import Scope
from environments import reservations
from environments.models import Core, Engine, EngineState, Environment, Host
from environments.setup import create_environment
from jobs.admission import admit
from jobs.billing.ledger import top_up
from jobs.billing.models import Account, Membership, Role
from jobs.models import Attempt, Job, JobStatus
from jobs.spec import read_spec
from jobs.tokens import make_token
from jobs.transitions import move_attempt, move_job


@dataclass(frozen=True)
class Site:
    """A host with eight cores, its engine `local`, and the environment `local/main` with four of them."""

    host: Host
    engine: Engine
    environment: Environment


def make_site(name: str = "local") -> Site:
    """16 GiB and 100,000 MiB on the host; 4 cores, 8 GiB and 50,000 MiB offered, half of it free; a live worker."""
    host = Host.objects.create(
        name=f"host-{name}", architecture="amd64", cpu_count=8, memory_mib=16_384, disk_mib=100_000
    )
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(8))
    engine = Engine.objects.create(host=host, name=name, endpoint=settings.DOCKER_HOST)
    environment = create_environment(
        engine,
        "main",
        cpu="0-3",
        ram_mib=8192,
        disk_mib=50_000,
        free={"cpu": 2, "ram": 4096, "disk": 20_000},
        free_fields={"max_jobs": 2},
        prices={"cpu": 1},
    )
    engine.state, engine.worker_seen_at = EngineState.ACTIVE, database_now() + timedelta(days=1)
    engine.save()
    return Site(host, engine, environment)


def make_user(name: str) -> Any:
    """A user with the password `secret`."""
    return get_user_model().objects.create_user(username=name, password="secret")


def make_account(name: str, *users: Any, credit: Decimal = Decimal(1_000_000)) -> Account:
    """An account with these members, and credit for every job of a test."""
    account = Account.objects.create(name=name)
    top_up(account, credit, reference=f"for {name}")
    for user in users:
        Membership.objects.create(account=account, user=user, role=Role.OWNER)
    return account


def submit(user: Any, key: str = "", **fields: Any) -> Job:
    """Admit a small job to `local/main`."""
    request: Mapping[str, Any] = {"environment": "local/main", "command": ["true"], **fields}
    return admit(user=user, spec=read_spec(request), idempotency_key=key)[0]


def take(job: Job, *states: str) -> Attempt:
    """Reserve for a queued job as a worker does, and walk its attempt on through `states`."""
    holder = new_public_id()
    with transaction.atomic():
        reservations.lock_host(job.environment.engine.host_id or 0)
        claim = reservations.acquire(
            holder=holder,
            environment=job.environment,
            tier=job.tier,
            amounts=job.terms["resources"],
            uid_range=settings.UID_RANGE,
        )
        number = Attempt.objects.filter(job=job).count() + 1
        attempt = Attempt.objects.create(
            public_id=holder,
            job=job,
            number=number,
            engine=job.environment.engine,
            uid=claim.uid,
            cores=list(claim.cores),
            lease=new_public_id(),
            container_name=f"cs-test-{holder.hex}",
        )
        move_job(job.pk, JobStatus.PREPARING, attempts_made=F("attempts_made") + 1, not_before=None)
    for state in states:
        assert move_attempt(attempt, state)
        if state == "running":
            assert move_job(job.pk, JobStatus.RUNNING, started_at=database_now())
        if state == "collecting":
            assert move_job(job.pk, JobStatus.COLLECTING)
    attempt.refresh_from_db()
    return attempt


def client_of(user: Any, *scopes: str) -> APIClient:
    """A REST client with a new token of `user`, good for everything unless `scopes` are named."""
    _, token = make_token(user, scopes or Scope.values)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client
