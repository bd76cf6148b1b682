"""Workers as real processes that a test starts, freezes and kills."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def eventually(what: Callable[[], Any], seconds: float = 60, *, words: str = "") -> Any:
    """The first true value of `what`, asked again and again; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < end, f"not within {seconds} s: {words or what}"
        time.sleep(0.03)
    return value


@dataclass(frozen=True)
class WorkerProcess:
    """One worker process; it is nobody's child here, so its end is seen by its absence."""

    pid: int
    engine: str
    log: Path

    @property
    def state(self) -> str:
        """The kernel's letter for it (T is frozen, Z and X dead); empty when it is gone."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return text.rpartition(")")[2].split()[0]

    @property
    def dead(self) -> bool:
        return self.state in ("", "Z", "X")

    @property
    def frozen(self) -> bool:
        return self.state == "T"

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone. Safe to repeat."""
        if not self.dead:
            os.kill(self.pid, signal.SIGKILL)
        self.wait_dead()

    def wait_dead(self, seconds: float = 60) -> None:
        eventually(lambda: self.dead, seconds, words=f"worker {self.pid} ends, see {self.log}")

    def wait_frozen(self, seconds: float = 60) -> None:
        eventually(lambda: self.frozen, seconds, words=f"worker {self.pid} stops, see {self.log}")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)


class Zygote:
    """The parent of all workers of a test session."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.environment = dict(environment)
        self._one_order = threading.Lock()
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=REPOSITORY,
            env=self.environment,
        )

    def fork(
        self, engine: str, *options: str, log: Path, stop_at: str = "", **settings: Any
    ) -> WorkerProcess:
        """A new worker of `engine`, on its way to the checkpoint `stop_at` if one is given."""
        order = {
            "engine": engine,
            "options": options,
            "log": str(log),
            "stop_at": stop_at,
            "settings": settings,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_order:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return WorkerProcess(int(self._process.stdout.readline()), engine, log)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()
