"""Remote workers as their owners run them: the agent's program in a process of its own, against a site that listens."""

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from django.db import close_old_connections

from jobs.models import Job
from tests.faults.processes import REPOSITORY, eventually
from tests.faults.site import FaultSite, Place
from workers.fleet.management.commands.prepare_fleet import prepare_agent
from workers.fleet.models import RemoteWorker, Unit
from workers.fleet.passes import run_pass
from workers.fleet.registration import retire
from workers.fleet.setup import create_fleet_environment
from workers.sandbox.docker import EngineClient

AMOUNTS = {"cpu": 1, "ram": 256, "disk": 256}


@dataclass
class AgentProcess:
    """One agent; what it is told lies in `folder`, what it says in `log`."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.folder / "agent.yaml").read_text())
        return found

    @property
    def kept(self) -> list[Path]:
        """Results that it has not got rid of yet."""
        return list((self.folder / "state" / "results").glob("*.json"))

    def start(self) -> None:
        """Start it, once more if it has ended."""
        argv = [sys.executable, "-m", "workers.fleet.agent", "--config", str(self.folder / "agent.yaml")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                cwd=REPOSITORY,
                env={"PATH": os.environ["PATH"], "AGENT_POLL": "0.1"},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9. Safe to repeat."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def end(self) -> int:
        """Its exit status once it has ended by itself."""
        assert self.process is not None
        return self.process.wait(timeout=20)


@dataclass
class FleetSite:
    """The site with the fleet on: agents, an environment that they serve, and an engine of ours for audits."""

    site: FaultSite
    audits: Place
    environment: Place
    url: str
    folder: Path
    agents: list[AgentProcess] = field(default_factory=list)

    def start(self, *owners: str, url: str = "", liar: str = "") -> list[AgentProcess]:
        """New agents of these owners, active already; that of the owner `liar` alters what it reports."""
        for name in owners:
            agent = AgentProcess(self.folder / name)
            number = len(self.agents)
            prepare_agent(agent.folder, name, number, url or self.url, AMOUNTS, lies=name == liar)
            self.agents.append(agent)
            agent.start()
        active = RemoteWorker.objects.filter(status="active")
        eventually(lambda: active.count() == len(self.agents), words="the agents are active")
        return self.agents[-len(owners) :]

    def submit(self, script: str, **fields: Any) -> Job:
        """A job for the fleet."""
        return self.site.shell(self.environment, script, **fields)

    def unit(self, job: Job) -> Unit:
        return Unit.objects.get(attempt__job=job)

    def end(self) -> None:
        """Retire every worker: each agent hears it and ends well, with nothing left on its engine."""
        try:
            for worker in RemoteWorker.objects.exclude(status="retired"):
                retire(worker)
            for agent in self.agents:
                assert agent.end() == 0, agent.log.read_text()
                client = EngineClient(self.site.docker_host)
                assert client.list_site(agent.told["name"]) == []
                client.close()
        finally:
            for agent in self.agents:
                agent.kill()
                print(agent.log.read_text())


@contextmanager
def passes() -> Iterator[None]:
    """The fleet's periodic pass, far more often than in real life."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.3):
            run_pass()
            close_old_connections()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def make_fleet_site(site: FaultSite, url: str, folder: Path) -> FleetSite:
    """The environment `fleet/<audits' engine>` of two replicas, audited on a new engine row."""
    audits = site.place()
    environment = create_fleet_environment(
        audits.engine.name, audits.environment, most=AMOUNTS, policy={"replicas": 2}, prices={"cpu": 1}
    )
    return FleetSite(site, audits, Place(environment.engine, environment, audits.client), url, folder)


class Proxy:
    """Stands between an agent and the site. The answer to the first result is kept back for ever."""

    def __init__(self, url: str) -> None:
        self.site = urlsplit(url)
        self.stored = threading.Event()  # the site has answered the first result
        self.results = 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        proxy = self

        class Forward(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                proxy.forward(self)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def forward(self, asked: BaseHTTPRequestHandler) -> None:
        """One request to the site and its answer back, unless it is the first result's."""
        body = asked.rfile.read(int(asked.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(self.site.hostname or "", self.site.port)
        connection.request("POST", asked.path, body, dict(asked.headers))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if asked.path.endswith("/result"):
            with self._lock:
                self.results += 1
                first = self.results == 1
            if first:
                asked.close_connection = True
                self.stored.set()
                self._over.wait()  # a connection that ends would be an answer: the agent would ask again at once
                return
        asked.send_response(answer.status)
        asked.send_header("Content-Length", str(len(content)))
        asked.end_headers()
        asked.wfile.write(content)
