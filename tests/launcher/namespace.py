"""A launcher run as PID 1 of a namespace of its own, which needs no engine and takes milliseconds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

UID = 42_424  # nobody else's
AS_ROOT = os.getuid() == 0
Found = TypeVar("Found")


@dataclass
class Container:
    """One run: the control folder and the process that holds the namespace."""

    control: Path
    process: subprocess.Popen[bytes]

    def wait(self, timeout: float = 15) -> int:
        """The launcher's exit code."""
        return self.process.wait(timeout)

    def pid(self) -> int:
        """The launcher's PID as seen from here."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(until(lambda: children.read_text().split())[0])

    def signal(self, number: int) -> None:
        os.kill(self.pid(), number)

    def log(self, stream: str = "stdout") -> bytes:
        return (self.control / stream).read_bytes()

    def marker(self) -> dict[str, Any]:
        line = (self.control / "marker").read_bytes()
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        return dict(json.loads(line))


def until(look: Callable[[], Found], timeout: float = 10) -> Found:
    """What `look` returns once it is true; polls, since the other side is a process."""
    end = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return found


class Runner:
    """Starts launchers, each in a PID and a mount namespace of its own."""

    def __init__(self, launcher: Path) -> None:
        self.launcher = launcher
        self.folder = Path(tempfile.mkdtemp(prefix="cs-control-"))
        self.folder.chmod(0o711)
        self.started: list[Container] = []

    def control(self) -> Path:
        """A new control folder, as the workspace makes it."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for name in ("stdout", "stderr", "marker"):
            file = folder / name
            file.touch(mode=0o600)
            if AS_ROOT:
                os.chown(file, UID, UID)
        folder.chmod(0o711)
        return folder

    def start(
        self,
        *argv: str | bytes,
        deadline: int | str = 10,
        cap: int | str = 1_000_000,
        grace: int | str = 2,
        control: Path | None = None,
        limits: str = "",
        **options: Any,
    ) -> Container:
        folder = control or self.control()
        command: list[str | bytes] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if AS_ROOT:
            command += ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
            command += ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        else:
            command[1:1] = ["--user", "--map-current-user"]
        if limits:
            command += ["prlimit", limits]
        command += [str(self.launcher), str(folder), str(deadline), str(cap), str(grace), "--", *argv]
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **options)
        self.started.append(Container(folder, process))
        return self.started[-1]

    def run(self, *argv: str | bytes, **options: Any) -> tuple[int, Container]:
        container = self.start(*argv, **options)
        return container.wait(), container

    def close(self) -> None:
        for container in self.started:
            if container.process.poll() is None:
                container.signal(signal.SIGKILL)
                container.process.wait()
            if container.process.stderr:
                container.process.stderr.close()
        shutil.rmtree(self.folder)
