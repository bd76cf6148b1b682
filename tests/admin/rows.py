"""A site with rows in every table that the admin shows."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection

from compute_site.core import db
from compute_site.core.db import database_now
from environments.models import AccessList, AccessListEntry, Device, SlotSet, WalletAddress
from environments.setup import create_environment
from jobs.logs import append_log
from jobs.models import Attempt
from jobs.outcome import Outcome, StoredFile
from jobs.settlement import settle
from jobs.tokens import make_token
from providers.models import Orphan, Pod, PodEvent, ProviderAccount
from tests.factories import make_account, make_site, make_user, submit, take
from workers.fleet.models import (
    Audit,
    Binding,
    Fault,
    FleetPolicy,
    Owner,
    OwnerKey,
    RemoteWorker,
    Replica,
    Unit,
)
from workers.lifecycle import register
from workers.models import Image, ImageScan

RUN = ("created", "starting", "running")
GPU = "GPU-00000000-0000-0000-0000-0000000{:05d}"


def make_rows(first: int, count: int) -> None:
    """`count` more rows of everything, numbered from `first`, each on a host and of an account of its own."""
    for number in range(first, first + count):
        user = make_user(f"user{number}")
        account = make_account(f"account {number}", user)
        Group.objects.create(name=f"group {number}")
        WalletAddress.objects.create(user=user, address=f"0x{number:040}")
        listed = AccessList.objects.create(name=f"list{number}")
        AccessListEntry.objects.create(access_list=listed, user=user)
        make_token(user, name=f"token {number}")
        attempt = make_jobs(number, user)
        rent(number, user)
        make_fleet_rows(number, account, attempt)


def make_jobs(number: int, user: Any) -> Attempt:
    """A host with a device, an engine with a worker, an environment; a failed, a queued and a running job."""
    site = make_site(f"e{number}")
    gpu = GPU.format(number)
    device = Device.objects.create(host=site.host, uuid=gpu, model="H200", memory_mib=143_000)
    ImageScan.objects.create(
        engine=site.engine, image_id="sha256:0", reference="busybox:1", verdict="findings", said="CVE-1"
    )
    Image.objects.create(
        engine=site.engine,
        image_id=f"sha256:{number:064}",
        references=["busybox:1"],
        origin="pulled",
        size=4_000_000,
    )
    create_environment(
        site.engine, "gpu", cpu="4-5", ram_mib=1024, disk_mib=1000, devices={"gpu": [gpu]}, prices={"gpu": 3}
    )
    register(site.engine, SlotSet(frozenset({4}), frozenset({device.pk})))
    wanted: dict[str, Any] = {"environment": f"e{number}/main", "max_duration": 60}
    failed = take(submit(user, labels={"a": "b"}, **wanted), *RUN, "collecting")
    append_log(failed, "stdout", 0, b"hello")
    files = [StoredFile("out.txt", 3, "0" * 64)]
    usage = {"cpu_seconds": 1.5, "peak_memory_bytes": 1 << 20}
    settle(
        failed,
        failed.lease,
        Outcome("exit_nonzero", exit_code=3, run_seconds=2.0, artifacts=files, usage=usage),
    )
    submit(user, **wanted)
    gpu_job: dict[str, Any] = {"environment": f"e{number}/gpu", "resources": {"gpu": 1}}
    return take(submit(user, **{**wanted, **gpu_job}), *RUN)


def rent(number: int, user: Any) -> Pod:
    """An account at a provider with a running pod, and an orphan."""
    account = ProviderAccount.objects.create(
        name=f"provider {number}", kind="lium", daily_cap=100, monthly_cap=500
    )
    now = database_now()
    pod = Pod.objects.create(
        account=account,
        name=f"pod-{number}",
        status="running",
        requested_by=user,
        spec={"gpu_type": "H200"},
        gpu_count=1,
        price_cap=3,
        lifetime_hours=2,
        committed_cost=6,
        price_per_hour=Decimal("2.5"),
        requested_at=now - timedelta(hours=1),
        deadline=now + timedelta(hours=1),
        provider_id=f"there-{number}",
    )
    PodEvent.objects.create(pod=pod, kind="running")
    Orphan.objects.create(account=account, provider_id=f"orphan-{number}", name=f"orphan-{number}")
    return pod


def make_fleet_rows(number: int, account: Any, attempt: Attempt) -> None:
    """An owner with a remote worker, and a disputed unit with its audit and a fault."""
    environment = attempt.job.environment
    owner = Owner.objects.create(account=account)
    key = OwnerKey.objects.create(owner=owner, key=f"key {number}")
    binding = Binding.objects.create(
        owner_key=key,
        worker_key=f"w{number}",
        serial="1",
        statement={},
        signature="",
        not_after=database_now(),
    )
    worker = RemoteWorker.objects.create(owner=owner, key=f"w{number}", binding=binding)
    audited = environment.engine.environments.get(slug="main")
    FleetPolicy.objects.create(environment=environment, audit_environment=audited)
    unit = Unit.objects.create(attempt=attempt, environment=environment, wanted=2)
    Replica.objects.create(unit=unit, number=1)
    Audit.objects.create(unit=unit, job=attempt.job)
    Fault.objects.create(unit=unit, worker=worker, found="a" * 64, expected="b" * 64)


class Statements:
    """Counts statements, also the prepared ones, which Django does not see."""

    def __init__(self, monkeypatch: Any) -> None:
        self.count = 0
        original = db.prepared

        def counted(statement: str, values: Any) -> Any:
            self.count += 1
            return original(statement, values)

        monkeypatch.setattr(db, "prepared", counted)

    def of(self, call: Any) -> tuple[Any, int]:
        """What the call returns, and how many statements it took."""
        self.count = 0

        def seen(execute: Any, *arguments: Any) -> Any:
            self.count += 1
            return execute(*arguments)

        with connection.execute_wrapper(seen):
            return call(), self.count
