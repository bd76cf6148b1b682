"""A host with cores and devices, engines on it, and environments made through the real rules."""

from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.template.response import TemplateResponse

from compute_site.core.models import new_public_id
from environments import editing, reservations
from environments.models import Core, Device, Engine, Environment, Host
from environments.reservations import Claim
from environments.setup import create_environment

UIDS = (2_000_000_000, 1000)


def make_host(name="rack-a", cores=8, memory=16_384, disk=100_000) -> Host:
    host = Host.objects.create(
        name=name,
        cpu_count=cores,
        memory_mib=memory + 1024,
        disk_mib=disk + 2000,
        reserve_memory_mib=1024,
        reserve_disk_mib=2000,
    )
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(cores))
    for number in range(2):
        Device.objects.create(host=host, uuid=f"GPU-{name}-{number}", model="H200")
    return host


def make_engine(host: Host, name="local") -> Engine:
    return Engine.objects.create(host=host, name=name, endpoint="unix:///var/run/docker.sock")


def acquire(environment: Environment, holder: UUID, amounts, tier="paid", uids=UIDS) -> Claim:
    """Reserve in a transaction of its own."""
    with transaction.atomic():
        reservations.lock_host(environment.host.pk)
        return reservations.acquire(
            holder=holder, environment=environment, tier=tier, amounts=amounts, uid_range=uids
        )


def take(environment: Environment, tier="paid", uids=UIDS, **asked: int) -> tuple[UUID, Claim]:
    """Fill and reserve as a worker does; returns the holder and its claim."""
    holder = new_public_id()
    return holder, acquire(environment, holder, reservations.fill(environment, tier, asked), tier, uids)


def give_back(holder: UUID) -> None:
    with transaction.atomic():
        reservations.release_running(holder)
    with transaction.atomic():
        reservations.release_rest(holder)


def place_cores(environment: Environment, cores: str | list[int]) -> None:
    """As the environment's page in the admin, with cores named."""
    with editing.edited(environment):
        editing.place_cores(environment, cores)


@pytest.fixture
def host(db) -> Host:
    return make_host()


@pytest.fixture
def engine(host) -> Engine:
    return make_engine(host)


@pytest.fixture
def environment(engine) -> Environment:
    """Cores 0-3, 8 GiB, 50,000 MiB of disk, two GPUs, a price list, and a free tier of half."""
    return create_environment(
        engine,
        "main",
        cpu="0-3",
        ram_mib=8192,
        disk_mib=50_000,
        devices={"gpu": [f"GPU-{engine.host.name}-0", f"GPU-{engine.host.name}-1"]},
        counters={"licence": 3},
        free={"cpu": 2, "ram": 2048, "disk": 10_000},
        free_fields={"max_jobs": 2},
        prices={"cpu": 1},
    )


@pytest.fixture
def browser(client, db):
    """An administrator's."""
    client.force_login(get_user_model().objects.create_superuser("olga", password="x"))
    return client


@pytest.fixture
def unrendered(monkeypatch):
    """Pages as data: their forms and errors without the costly HTML."""
    monkeypatch.setattr(TemplateResponse, "rendered_content", "")
