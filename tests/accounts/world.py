"""The small site that histories happen on: two hosts, three engines, and what stands in for Docker on them."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from compute_site.core.db import database_now
from environments.editing import activate_engine
from environments.models import Core, Device, Engine, Environment, Host
from environments.setup import create_environment
from jobs.billing.models import Account
from jobs.models import Attempt, Job
from tests.factories import make_account, make_user
from workers import lifecycle
from workers.models import Worker
from workers.sandbox.docker import ContainerFacts
from workers.sandbox.marker import Marker
from workers.steps import Run

NOTHING = dict.fromkeys(
    ("signal", "exec_errno", "stdout_bytes", "stderr_bytes", "stdout_cut", "stderr_cut", "started_ns", "ended_ns",
     "user_us", "system_us", "max_rss_kib"), 0
)  # fmt: skip


@dataclass
class Docker:
    """An engine, its client and its workspaces in one: all that is asked is done at once, and nothing is left."""

    engine: Engine
    exit_code: int = 0
    facts: None = None

    @property
    def client(self) -> "Docker":
        return self

    def workspace(self, name: str, image_id: str = "") -> "Docker":
        return self

    def marker(self) -> Marker:
        return Marker(status="exited", code=self.exit_code, deadline=False, termed=False, boot_id_start="",
                      boot_id_end="", refused="", **NOTHING)  # fmt: skip

    def exited(self, attempt: Attempt, at: datetime) -> ContainerFacts:
        """The attempt's container as it is inspected after its end."""
        return ContainerFacts(
            id=attempt.container_id, name=attempt.container_name, status="exited", exit_code=self.exit_code,
            oom_killed=False, error="", started_at=at, finished_at=at, labels={}, pid=0,
        )  # fmt: skip

    def start(self, container_id: str) -> None:
        pass

    def image(self, reference: str) -> None:
        pass

    def inspect(self, name: str) -> None:
        pass

    def create(self, name: str, body: Any) -> str:
        return name

    def remove(self, container_id: str) -> bool:
        return True

    def destroy(self) -> None:
        pass

    def absent(self) -> bool:
        return True


def run_of(attempt: Attempt, *, exit_code: int = 0) -> Run:
    """The attempt as whoever holds its lease has it in hand."""
    job = Job.objects.select_related("environment").get(pk=attempt.job_id)
    attempt.job = job
    assert attempt.lease is not None
    return Run(attempt, job, attempt.lease, Docker(attempt.engine, exit_code))  # type: ignore[arg-type]


@dataclass(frozen=True)
class World:
    """What all histories begin with: nothing was ever reserved."""

    user: Any
    account: Account
    hosts: tuple[Host, ...]
    engines: tuple[Engine, ...]
    environments: tuple[Environment, ...]
    workers: tuple[Worker, ...]


def make_world() -> World:
    """Host `one`: engine `a` with two environments and `b` with a free one, devices and a counter shared, memory and disk
    overcommitted, a core that is nobody's. Host `two` with engine `c`: small, and the one that may be declared gone.
    """
    user = make_user("ada")
    account = make_account("ada's", user, credit=Decimal(3000))
    one, two = _host("one", cores=8, devices=3), _host("two", cores=2, devices=1)
    a, b, c = (
        Engine.objects.create(host=host, name=name, endpoint="unix:///nowhere")
        for host, name in ((one, "a"), (one, "b"), (two, "c"))
    )
    environments = (
        create_environment(
            a, "main", cpu="0-2", ram_mib=8192, disk_mib=40_000, devices={"gpu": ["one-0", "one-1"]},
            counters={"licence": 3}, free={"cpu": 2, "ram": 2048, "disk": 8000, "licence": 1},
            free_fields={"max_jobs": 2}, prices={"cpu": 1, "gpu": Decimal("2.5")}, max_jobs=2,
        ),
        create_environment(
            a, "large", cpu="3-4", ram_mib=12_000, disk_mib=80_000, devices={"gpu": ["one-1", "one-2"]},
            counters={"licence": 2}, prices={"cpu": Decimal("0.1"), "ram": Decimal("0.0001")},
        ),
        create_environment(
            b, "open", cpu="5-6", ram_mib=10_000, disk_mib=70_000,
            devices={"h200": ["one-2", "one-0"], "spare": ["one-1"]},
            free={"cpu": 2, "ram": 10_000, "disk": 70_000, "h200": 1}, free_fields={"max_jobs": 3},
        ),
        create_environment(
            c, "main", cpu="0-1", ram_mib=4096, disk_mib=20_000, devices={"gpu": ["two-0"]},
            free={"cpu": 1, "ram": 1024, "disk": 4000}, prices={"cpu": Decimal("0.5")},
        ),
    )  # fmt: skip
    for environment in environments[:2]:
        environment.resources.filter(slug="licence").update(sharing="shared_exclusive")
    for engine in (a, b, c):
        activate_engine(engine)
    workers = tuple(lifecycle.register(engine) for engine in (a, b, c))
    Engine.objects.update(worker_seen_at=database_now())
    return World(user, account, (one, two), (a, b, c), environments, workers)


def _host(name: str, *, cores: int, devices: int) -> Host:
    host = Host.objects.create(
        name=name,
        cpu_count=cores,
        memory_mib=17_000,
        disk_mib=101_000,
        reserve_memory_mib=1000,
        reserve_disk_mib=1000,
    )
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(cores))
    for number in range(devices):
        Device.objects.create(host=host, uuid=f"{name}-{number}", model="H200", memory_mib=80_000)
    return host
