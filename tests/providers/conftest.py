"""Two providers on loopback, an account at each, and a guard: no test here reaches anything else."""

import ipaddress
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compute_site.embedded.fakes import FakeLium, FakeTargon
from providers import ending, observing, renting
from providers.models import Pod, ProviderAccount

DIGEST = "sha256:" + "ab" * 32
WANTED = {
    "image": "registry.example.org/site/agent",
    "digest": DIGEST,
    "tag": "1.0",
    "max_lifetime_hours": 2,
    "max_price_per_hour": "3",
    "gpu_type": "H200",
}
START = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)


def is_loopback(host: Any) -> bool:
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets to other machines and names to look up are faults of the test."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    def guarded_look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if not is_loopback(host):
            raise AssertionError(f"a test tried to look up {host}")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_look_up)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of the guard behind a create are not waited for."""
    monkeypatch.setattr("providers.creation.sleep", lambda seconds: None)


@pytest.fixture
def lium():
    with FakeLium() as fake:
        yield fake


@pytest.fixture
def targon():
    with FakeTargon() as fake:
        yield fake


def make_account(fake: Any, kind: str, **fields: Any) -> ProviderAccount:
    account = ProviderAccount(
        kind=kind,
        base_url=fake.url,
        **{
            "name": kind,
            "daily_cap": 100,
            "monthly_cap": 500,
            "max_pods": 5,
            "accepts_no_provider_clock": True,
            **fields,
        },
    )
    account.full_clean()
    account.save()
    account.set_key(fake.key)
    return account


@pytest.fixture
def at_lium(lium: FakeLium, db: None) -> ProviderAccount:
    return make_account(lium, "lium")


@pytest.fixture
def at_targon(targon: FakeTargon, db: None) -> ProviderAccount:
    return make_account(targon, "targon")


@pytest.fixture(params=["lium", "targon"])
def either(request: pytest.FixtureRequest, db: None) -> tuple[Any, ProviderAccount]:
    """Each provider in turn: its imitation and our account there."""
    fake = request.getfixturevalue(request.param)
    return fake, make_account(fake, request.param)


def there(fake: Any) -> dict[str, dict[str, Any]]:
    """What exists at the provider, by id."""
    return fake.pods if isinstance(fake, FakeLium) else fake.workloads


def create_path(fake: Any) -> str:
    return r"/executors/[^/]+/rent" if isinstance(fake, FakeLium) else "/workloads"


def row_path(fake: Any) -> str:
    return r"/pods/[^/]+" if isinstance(fake, FakeLium) else r"/workloads/[^/]+"


def list_path(fake: Any) -> str:
    return "/pods" if isinstance(fake, FakeLium) else "/workloads"


def ask(account: ProviderAccount, **fields: Any) -> Pod:
    return renting.ask(account, {**WANTED, **fields}, now=START)[0]


def rent(account: ProviderAccount, now: datetime = START, **fields: Any) -> Pod:
    """Ask and have the site's worker do it; the pod as its row is then."""
    pod = ask(account, **fields)
    Pod.objects.filter(pk=pod.pk).update(created_at=START)
    renting.rent(pod.pk, now=now)
    return fresh(pod)


def fresh(pod: Pod) -> Pod:
    return Pod.objects.get(pk=pod.pk)


def observe(now: datetime = START, times: int = 1) -> None:
    for _ in range(times):
        observing.observe_pods(now=now)


def running(account: ProviderAccount, **fields: Any) -> Pod:
    pod = rent(account, **fields)
    observe(times=3)
    assert fresh(pod).status == "running"
    return fresh(pod)


def check(now: datetime) -> None:
    ending.check_pod_terminations(now=now)


def later(**fields: float) -> datetime:
    return START + timedelta(**fields)
