"""Jobs per second, time from POST to finished, and CPU time per job, each beside a `docker run --rm` loop.

Loop and site take turns, so that what else the machine does hits both. A job does nothing (Python starts and ends):
what is measured is everything around it.
"""

import http.client
import json
import os
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection

from bench import docker_loop
from bench.figures import Meter, spread
from bench.place import keep_logs, running, wait_until
from bench.tables import OURS
from compute_site.embedded.paths import RUN
from compute_site.embedded.processes import ENGINE_NAME
from compute_site.embedded.progress import step
from environments.editing import activate_engine, set_core_total
from environments.models import Environment
from environments.setup import create_environment
from jobs.billing.ledger import top_up
from jobs.billing.models import Account, Membership, Role
from jobs.tokens import make_token
from workers.registration import register_engine

JOB = {
    "environment": f"{ENGINE_NAME}/main",
    "command": list(docker_loop.COMMAND),
    "resources": {"cpu": 1, "ram": docker_loop.MEMORY_MIB, "disk": docker_loop.DISK_MIB},
    "max_duration": 60,
}
KEPT_ALIVE = 3.0  # seconds; uvicorn closes an idle connection after five
LATENCY_PAUSE = 0.005
DONE_PAUSE = 0.2  # while many run: seldom, since asking costs


def measure(*, folder: Path, jobs: int, rounds: int, parallel: Sequence[int]) -> dict[str, Any]:
    """All of it: `jobs` runs in each of `rounds` rounds. Returns figures by name; times in ms unless they say else."""
    token = prepare()
    (folder / "data-of-loop").mkdir()
    argv = docker_loop.command(folder / "data-of-loop")
    with running(folder) as (port, meter):
        bench = _Bench(port, token, meter, argv)
        try:
            bench.warm_up()
            return {
                "machine": machine(),
                "idle_cpu_ms_per_s": bench.idle(),
                "latency": bench.latency(jobs),
                "parallel": {str(width): bench.side_by_side(width, jobs, rounds) for width in parallel},
            }
        finally:
            keep_logs(folder, RUN / "bench" / "log")


def prepare() -> str:
    """Register the engine, give it one environment with every core, make a client; returns the client's token."""

    engine, warnings = register_engine(ENGINE_NAME, settings.DOCKER_HOST, "bench")
    for warning in warnings:
        step(f"engine: {warning}")
    host = engine.host
    assert host is not None
    create_environment(
        engine,
        "main",
        ram_mib=host.usable_memory_mib // 2,
        disk_mib=min(8192, host.usable_disk_mib // 2),
        prices={"cpu": Decimal("0.01")},
    )
    activate_engine(engine)
    user = get_user_model().objects.create(username="bench")
    account = Account.objects.create(name="bench")
    Membership.objects.create(account=account, user=user, role=Role.OWNER)
    top_up(account, Decimal(1_000_000_000), reference="bench")
    return make_token(user, name="bench")[1]


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "kernel": os.uname().release,
        "docker_client": Path(docker_loop.client()).name,
    }


class _Bench:
    """A running site, and the loop beside it."""

    def __init__(self, port: int, token: str, meter: Meter, argv: list[str]) -> None:
        self.meter, self.argv = meter, argv
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._asked = 0.0
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def submit(self) -> str:
        """POST one job; returns its id."""
        if time.monotonic() - self._asked > KEPT_ALIVE:
            self._http.close()  # the server does so after a while; the next request connects again
        self._asked = time.monotonic()
        self._http.request("POST", "/api/v1/jobs", json.dumps(JOB), self._headers)
        response = self._http.getresponse()
        body = json.loads(response.read())
        if response.status != 201:
            raise RuntimeError(f"refused: {body}")
        return str(body["id"])

    def warm_up(self) -> None:
        """The first of everything is slower: images' layers, templates of disks, statements to prepare."""
        for _ in range(3):
            docker_loop.run_once(self.argv)
            self.submit()
        self.wait_clean(DONE_PAUSE)

    def wait_clean(self, pause: float) -> None:
        """Until every job is final and everything of it removed."""
        wait_until(lambda: _left() == 0, 300, pause)

    def idle(self, seconds: float = 2.0) -> dict[str, float]:
        """CPU milliseconds a second while there is nothing to do."""
        before = self.meter.read()
        time.sleep(seconds)
        return {name: used / seconds for name, used in self.meter.since(before).items()}

    def latency(self, count: int) -> dict[str, Any]:
        """One at a time on an idle site, in turns with one run of the loop: milliseconds."""
        loop, site, posts = [], [], []
        for _ in range(count):
            loop.append(docker_loop.run_once(self.argv) * 1000)
            started = time.time()
            job = self.submit()
            posts.append((time.time() - started) * 1000)
            wait_until(lambda job=job: _finished(job) is not None, 60, LATENCY_PAUSE)  # type: ignore[misc]
            site.append((_finished(job) - started) * 1000)  # type: ignore[operator]
            self.wait_clean(LATENCY_PAUSE)
        step(f"latency: loop {median(loop):.0f} ms, POST to finished {median(site):.0f} ms")
        return {
            "loop": spread(loop),
            "post_to_finished": spread(site),
            "post": spread(posts),
            "phases": _phases(),
        }

    def side_by_side(self, width: int, count: int, rounds: int) -> dict[str, Any]:
        """`rounds` times `count` runs of each, `width` at a time; a site cannot give more cores than there are."""
        slots = min(width, len(os.sched_getaffinity(0)))
        _set_cores(slots)
        loops, sites = [], []
        for _ in range(rounds):
            loops.append(self._loop(width, count))
            sites.append(self._site(count))
            step(
                f"{width} at a time: {loops[-1]['per_second']:.2f}/s loop, {sites[-1]['per_second']:.2f}/s site"
            )
        loop, site = _medians(loops), _medians(sites)
        return {
            "slots": slots,
            "loop": loop,
            "site": site,
            "jobs_per_second_ratio": site["per_second"] / loop["per_second"],
            "cpu_outside_docker": sum(site["cpu"].get(name, 0.0) for name in OURS),
        }

    def _loop(self, width: int, count: int) -> dict[str, Any]:
        before, clients = self.meter.read(), docker_loop.clients_cpu_ms()
        seconds = docker_loop.run_many(self.argv, count, width)
        cpu = self.meter.since(before, count)
        own = {"client": (docker_loop.clients_cpu_ms() - clients) / count}
        return {
            "per_second": count / seconds,
            "cpu": own | ({"docker": cpu["docker"]} if "docker" in cpu else {}),
        }

    def _site(self, count: int) -> dict[str, Any]:
        before, started = self.meter.read(), time.time()
        jobs = [self.submit() for _ in range(count)]
        self.wait_clean(DONE_PAUSE)
        seconds = max(_finished(job) or 0.0 for job in jobs) - started
        return {"per_second": count / seconds, "cpu": self.meter.since(before, count)}


def _medians(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = rounds[0]["cpu"]
    return {
        "per_second": median(one["per_second"] for one in rounds),
        "cpu": {name: median(one["cpu"][name] for one in rounds) for name in names},
    }


def _left() -> int:
    """Jobs and attempts that are not through."""
    return int(
        _row(
            "SELECT (SELECT count(*) FROM jobs_job WHERE finished_at IS NULL)"
            " + (SELECT count(*) FROM jobs_attempt WHERE cleaned_at IS NULL)"
        )[0]
    )


def _finished(job: str) -> float | None:
    """When the job ended, in seconds since the epoch. Raises when it did not end well."""
    end, status, *why = _row(
        "SELECT extract(epoch FROM finished_at), status, end_reason, end_detail FROM jobs_job WHERE public_id = %s",
        job,
    )
    if end is not None and status != "succeeded":
        raise RuntimeError(f"job {job} {status}: {' '.join(why)}")
    return None if end is None else float(end)


def _phases() -> dict[str, float]:
    """Median milliseconds between the events of a job, by the state that ends the phase."""
    rows = _rows(
        "SELECT kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FROM (SELECT kind, 1000 * extract(epoch FROM"
        " created_at - lag(created_at) OVER (PARTITION BY job_id ORDER BY id)) AS ms FROM jobs_jobevent) e"
        " WHERE ms IS NOT NULL GROUP BY kind"
    )
    return {kind: float(ms) for kind, ms in rows}


def _set_cores(total: int) -> None:

    set_core_total(Environment.objects.get(), total)


def _rows(statement: str, *values: Any) -> list[tuple[Any, ...]]:

    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def _row(statement: str, *values: Any) -> tuple[Any, ...]:
    return _rows(statement, *values)[0]
