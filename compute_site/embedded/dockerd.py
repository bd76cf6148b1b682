"""A private Docker engine, started from unpacked Debian packages and cleared away without a trace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from . import bridge, children, packages
from .cgroups import Cgroup
from .mounts import unmount_below
from .paths import RUN, made
from .ping import answers
from .progress import Failed, step, warn

PACKAGES = ("docker.io", "containerd", "runc", "tini")
UNPACKED = RUN / "docker-engine"


class PrivateEngine:
    """One dockerd with its own containerd, data, sockets, bridge and cgroup: several can run side by side.

    `folder` keeps data and logs between starts; `name` (letters, digits, `-`, at most 11 characters)
    is unique on the machine. `live_restore` lets containers outlive the daemon. `site` is the id of the site
    whose jobs run here: they have cgroups outside the engine's own.
    """

    def __init__(
        self, folder: Path, name: str, *, sockets: Path, live_restore: bool = True, site: str = ""
    ) -> None:
        self.folder = folder.absolute()
        self.name = name
        self.live_restore = live_restore
        self.site = site
        self.cgroups = Cgroup(f"cs-{name}")
        self._job_cgroups = [Cgroup(f"compute-site-{site}")] if site else []
        self.bridge = f"cs-{name}"
        self.run_folder = sockets / f"e-{name}"
        self.docker_host = f"unix://{self.run_folder}/docker.sock"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def cgroup(self) -> Path:
        """The cgroup folder that accounts for daemon, containerd, shims and containers together."""
        return self.cgroups.accounting

    @property
    def data_root(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "dockerd.log"

    @property
    def pid(self) -> int | None:
        """The daemon's process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self, *, fresh: bool = True, seconds: float = 60.0) -> None:
        """Start the daemon and wait for its answer.

        `fresh` first clears what an earlier run left (processes, mounts, cgroups): images and stopped
        containers stay. `fresh=False` adopts containers that still run.
        """
        if fresh:
            self.clear()
        self._forget_dead()
        made(self.data_root)
        made(self.run_folder)
        self.cgroups.create()
        with self.log.open("ab") as log:
            self._child = children.start(
                self._command(),
                env=self._environment(),
                output=log,
                death_signal=signal.SIGTERM,
                folder=self.folder,
                before=self.cgroups.join,
            )
        try:
            children.wait_until(self.ready, self._child, seconds, f"dockerd did not start: see {self.log}")
        except Failed:
            self.stop_daemon()
            raise

    def ready(self) -> bool:
        """True when the daemon answers a ping."""
        return answers(self.docker_host)

    def stop(self) -> None:
        """Stop the daemon and everything it left: containers, shims, mounts, cgroups, bridge. Repeatable."""
        children.stop(self._child, signal.SIGTERM, 30)
        self._child = None
        self.clear()

    def stop_daemon(self, first: int = signal.SIGTERM) -> None:
        """Stop the daemon alone; with live restore its containers go on."""
        children.stop(self._child, first, 30)
        self._child = None

    def kill(self) -> None:
        """kill -9 the daemon (its containerd dies with it); shims and containers go on."""
        self.stop_daemon(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the daemon and start it again over the same containers."""
        self.stop_daemon()
        self.start(fresh=False)

    def clear(self) -> None:
        """Remove all traces of a run except the data: needs no daemon, also after its kill -9."""
        for cgroups in (self.cgroups, *self._job_cgroups):
            if not cgroups.kill():
                warn(f"processes of the engine {self.name} cannot be killed: {sorted(cgroups.processes())}")
        for _ in range(3):
            unmount_below(self.folder)
            unmount_below(self.run_folder)
        for cgroups in (self.cgroups, *self._job_cgroups):
            cgroups.remove()
        bridge.remove_bridge(self.bridge)
        shutil.rmtree(self.run_folder, ignore_errors=True)

    def _forget_dead(self) -> None:
        """After a kill -9 a new daemon would wait for the old containerd while that is a zombie."""
        for file in (self.run_folder / "docker.pid", self.run_folder / "exec/containerd/containerd.pid"):
            if file.exists():
                children.wait_gone(int(file.read_text()), 5)
                file.unlink()

    def _command(self) -> list[str]:
        command = [
            program("dockerd"),
            f"--host={self.docker_host}",
            f"--data-root={self.data_root}",
            f"--exec-root={self.run_folder}/exec",
            f"--pidfile={self.run_folder}/docker.pid",
            f"--cgroup-parent={self.cgroups.parent_of_containers}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-masq=false",
            "--ip-forward=false",
            "--userland-proxy=false",
            f"--config-file={self._settings()}",
        ]
        if self.live_restore:
            command.append("--live-restore")
        return [*command, f"--bridge={self._bridge()}"]

    def _settings(self) -> Path:
        # A file of our own: the machine's daemon.json may contradict the arguments.
        path = self.folder / "daemon.json"
        path.write_text("{}\n")
        return path

    def _bridge(self) -> str:
        if bridge.make_bridge(self.bridge):
            return self.bridge
        if bridge.bridge_exists("docker0"):
            # A second daemon with --bridge=none would delete the first one's docker0.
            raise Failed("The kernel refuses a bridge of our own and docker0 is in use: set DOCKER_HOST.")
        return "none"

    def _environment(self) -> dict[str, str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
        folders = [UNPACKED / "usr/bin", UNPACKED / "usr/sbin"]
        environment["PATH"] = ":".join([*map(str, folders), "/usr/sbin:/usr/bin:/sbin:/bin"])
        libraries = [
            str(path)
            for path in (UNPACKED / "usr/lib", UNPACKED / "lib")
            for path in path.glob("*-linux-gnu*")
        ]
        if libraries:
            environment["LD_LIBRARY_PATH"] = ":".join(libraries)
        return environment


def provide_programs() -> None:
    """Make sure that dockerd and containerd can be run; raises `Failed` with what to do otherwise."""
    if os.getuid() != 0:
        raise Failed(
            "No Docker engine answers, and one can only be started as root: "
            "start Docker and set DOCKER_HOST if it is not the default, or run this as root."
        )
    if all(_found(name) for name in ("dockerd", "containerd", "runc")):
        return
    step(f"Docker engine: unpacking Debian's packages under {UNPACKED} (nothing is installed)")
    packages.unpack_whole(PACKAGES, UNPACKED, closure="missing")


def program(name: str) -> str:
    """The path of one of the engine's programs: the machine's own, else the unpacked one."""
    found = _found(name)
    if not found:
        raise Failed(
            f"{name} is missing although the packages were unpacked: remove {UNPACKED} and try again."
        )
    return found


def _found(name: str) -> str:
    folders = [UNPACKED / "usr/sbin", UNPACKED / "usr/bin"]
    return shutil.which(name, path=":".join([*map(str, folders), "/usr/sbin:/usr/bin:/sbin:/bin"])) or ""
