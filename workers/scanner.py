"""The operator's command that looks for known faults in an image: started, bounded, and read. Knows no rows."""

import atexit
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.docker import Tls

LOOK = 0.1  # seconds
READ = 1 << 17  # bytes at once: more than a pipe holds
KEPT_BYTES = 16 << 10  # of its output, the end of it
KEPT_LINES, KEPT_TEXT = 20, 1500

PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")  # nothing else of the site's own environment
# What a docker client reads: the names of the files below DOCKER_CERT_PATH are fixed.
TLS_FILES = {"ca": "ca.pem", "certificate": "cert.pem", "key": "key.pem"}

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\n\r\t -~\u00a0-\ud7ff\ue000-\U0010ffff]")
# An absolute path, or the address of a socket or a file; what follows https:// is neither.
# It begins where a word does: an image may have a scanner print words without an end, and each is read once.
HOST_PATHS = re.compile(r"(?<![a-z+])(?!https?:)[a-z+]++://\S+|(?<![\w/.-])/[\w.@+~-]+(?:/[\w.@+~-]*)*")

_running: set[int] = set()  # process groups


@dataclass(frozen=True, slots=True)
class Scanned:
    """How the command ended: its exit status, None when it could not be started or took too long; its last lines."""

    status: int | None
    said: str


def scan(command: Sequence[str], image: str, *, endpoint: str, tls: Tls | None, seconds: float) -> Scanned:
    """Run the command, `{image}` in its words replaced, for at most `seconds` with the engine as its DOCKER_HOST.

    Afterwards nothing of it runs any more. Of the site's environment it has PATH, HOME, LANG and TMPDIR alone.
    """
    words = [word.replace("{image}", image) for word in command]
    with tempfile.TemporaryDirectory(prefix="cs-scan-") as folder:
        try:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=_environment(endpoint, tls, Path(folder)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Scanned(None, f"The scanner could not be started: {error.strerror}.")
        _running.add(process.pid)
        try:
            ended, said = _follow(process, seconds)
        finally:
            _end(process.pid)
            status = process.wait()
            _running.discard(process.pid)
    return Scanned(status if ended else None, said)


def _environment(endpoint: str, tls: Tls | None, folder: Path) -> dict[str, str]:
    found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    found["DOCKER_HOST"] = endpoint
    if tls is not None:
        for name, file in TLS_FILES.items():
            (folder / file).symlink_to(Path(getattr(tls, name)).absolute())
        found |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(folder)}
    return found


def _follow(process: subprocess.Popen[bytes], seconds: float) -> tuple[bool, str]:
    """Read until it ends, not until its output does: somebody whom it started may hold that open.

    Returns whether it ended in time, and its last lines. It is not waited for, so that its number stays its own.
    """
    assert process.stdout is not None
    deadline, kept = time.monotonic() + seconds, b""
    with process.stdout as output:
        os.set_blocking(output.fileno(), False)
        open_still = True
        while True:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if open_still:
                data = _available(output.fileno())
                open_still = data != b""
                kept = (kept + (data or b""))[-KEPT_BYTES:]
            if ended:
                return True, readable(kept)
            if time.monotonic() >= deadline:
                return False, f"{readable(kept)}\nThe scanner took longer than {seconds:g} s.".strip()
            select.select([output] if open_still else [], [], [], LOOK)


def _available(descriptor: int) -> bytes | None:
    """What can be read now; None when that is nothing yet, empty at the end."""
    try:
        return os.read(descriptor, READ)
    except BlockingIOError:
        return None


def _end(group: int) -> None:
    """Nothing that the command started goes on."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


@atexit.register
def _end_all() -> None:
    """A worker that leaves takes its scanners with it."""
    for group in list(_running):
        _end(group)


def readable(output: bytes) -> str:
    """The last lines as plain text for a client: no control characters, no paths of this machine."""
    if len(output) >= KEPT_BYTES:
        output = output.partition(b"\n")[2]  # without the line that was cut
    text = ESCAPES.sub("", output.decode(errors="replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return HOST_PATHS.sub("…", "\n".join(lines[-KEPT_LINES:]))[-KEPT_TEXT:]
