"""The agent of a remote worker as a process of this machine: started, looked after until it is active, or ended."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from .site import TOKEN, Refused

MODULE = "workers.fleet.agent"
LOOK_SECONDS = 0.3
STOP_SECONDS = 10.0


class Agent:
    """One agent by its settings. It outlives this program once it is active."""

    def __init__(self, config: Path, key: str, checkout: Path, python: str, site_url: str) -> None:
        self.key = key  # the worker's public key, which the site knows it by
        self.log = config.with_suffix(".log")
        self._argv = [python, "-m", MODULE, "--config", str(config)]
        self._folder = checkout
        self._site_url = site_url
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @classmethod
    def prepared(cls, config: Path, checkout: Path, python: str, site_url: str) -> "Agent":
        """Raises Refused when its settings or its binding cannot be read, or the agent is not where it is sought."""
        try:
            told = yaml.safe_load(config.read_text())
            binding = json.loads((checkout / told["binding_file"]).read_text())
            key = binding["binding"]["worker_key"]
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
            raise Refused(f"--config {config}: {type(error).__name__}: {error}") from None
        if not (checkout / MODULE.replace(".", "/") / "__main__.py").exists():
            raise Refused(f"--checkout {checkout}: there is no {MODULE} in this folder.")
        return cls(config.resolve(), key, checkout, python or sys.executable, site_url)

    @property
    def pid(self) -> int:
        """Of its process, 0 before its start."""
        return self._process.pid if self._process is not None else 0

    @contextmanager
    def started(self) -> Iterator[None]:
        """Start it; whatever goes wrong inside ends it."""
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            self._process = self._launched(log)
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _launched(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Its own session: Ctrl-C here does not reach it. The token of whoever starts it is not its business."""
        environment = {name: value for name, value in os.environ.items() if name != TOKEN}
        environment["AGENT_SITE_URL"] = self._site_url
        try:
            return subprocess.Popen(
                self._argv,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(f"--python {self._argv[0]}: {error.strerror}.") from None

    def wait(self, look: Callable[[], tuple[Any, str]], seconds: float) -> Any:
        """What `look` finds within `seconds`. Raises Refused with its words, and the agent's last, when it does not."""
        assert self._process is not None
        end = time.monotonic() + seconds
        while True:
            found, words = look()
            if found is not None:
                return found
            code = self._process.poll()
            if code is not None:
                raise Refused(f"The agent ended with {code}: {self._last_words()}")
            if time.monotonic() > end:
                raise Refused(
                    f"The agent was not active within {seconds:.0f} s and was ended: {words}. {self._last_words()}"
                )
            time.sleep(LOOK_SECONDS)

    def _end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        """Its last line, of this start only."""
        lines = self.log.read_bytes()[self._log_from :].decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"{said[-1] if said else 'It said nothing.'} (log: {self.log})"
