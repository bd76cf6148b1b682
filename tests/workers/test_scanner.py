"""The operator's scanner as a process: real scripts, and nothing of them left."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import eventually
from workers import scanner
from workers.sandbox.docker import Tls
from workers.scanner import KEPT_BYTES, KEPT_LINES, KEPT_TEXT, Scanned, readable

ENDPOINT = "unix:///run/some/docker.sock"


def scan(script: str, *, image: str = "sha256:1", tls: Tls | None = None, seconds: float = 20) -> Scanned:
    """A shell script as the scanner; the image is its $1."""
    command = ["sh", "-c", script, "scanner", "{image}"]
    return scanner.scan(command, image, endpoint=ENDPOINT, tls=tls, seconds=seconds)


def alive(pid: int) -> bool:
    """Whether the process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("status", [0, 1, 2])
def test_status_and_words(status: int):
    assert scan(f'echo "of $1"; echo two >&2; exit {status}') == Scanned(status, "of sha256:1\ntwo")


def test_the_image_is_a_word_and_nothing_else():
    assert scan('echo "$1"', image="x; echo y $(id)").said == "x; echo y $(id)"


def test_it_has_the_engine_and_nothing_of_the_site_s(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_KEY", "hidden")
    monkeypatch.setenv("DATABASE_URL", "hidden")
    names = scan("env -0 | tr '\\0' '\\n' | cut -d= -f1 | sort").said.split()
    assert set(names) <= {"DOCKER_HOST", "HOME", "LANG", "PATH", "PWD", "TMPDIR", "SHLVL", "OLDPWD", "_"}
    assert scan('test "$DOCKER_HOST" = ' + ENDPOINT).status == 0
    assert scan("read line").status == 1  # nothing to read


def test_the_files_of_an_engine_by_tls_have_the_names_that_clients_read(tmp_path: Path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    tls = Tls(ca=str(tmp_path / "a"), certificate=str(tmp_path / "b"), key=str(tmp_path / "c"))
    script = 'cd "$DOCKER_CERT_PATH" && test "$DOCKER_TLS_VERIFY" = 1 && cat ca.pem cert.pem key.pem'
    assert scan(script, tls=tls) == Scanned(0, "abc")


def test_one_that_takes_too_long_has_failed_and_is_gone():
    begun = time.monotonic()
    found = scan("echo $$; sleep 60 & echo $!; wait", seconds=0.5)
    assert time.monotonic() - begun < 5
    assert found.status is None
    *pids, words = found.said.splitlines()
    assert words == "The scanner took longer than 0.5 s."
    eventually(lambda: not any(alive(int(pid)) for pid in pids), 5)


def test_whom_it_leaves_behind_is_not_waited_for_and_gone():
    begun = time.monotonic()
    found = scan("sleep 60 & echo $!; exit 1")
    assert time.monotonic() - begun < 5
    assert found.status == 1
    eventually(lambda: not alive(int(found.said)), 5)


def test_one_that_closes_its_output_is_waited_for():
    assert scan("exec >&- 2>&-; sleep 0.3; exit 1") == Scanned(1, "")


def test_killed_is_no_verdict():
    assert scan("kill -9 $$").status == -9


def test_what_cannot_be_started():
    command = ["/no/such/scanner", "{image}"]
    found = scanner.scan(command, "x", endpoint=ENDPOINT, tls=None, seconds=5)
    assert found == Scanned(None, "The scanner could not be started: No such file or directory.")


def test_a_flood_is_bounded():
    begun = time.monotonic()
    found = scan("yes finding | head -c 3000000; echo last; exit 1")
    assert time.monotonic() - begun < 20
    assert found.status == 1
    assert len(found.said) <= KEPT_TEXT
    assert found.said.endswith("finding\nlast")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"CVE-1 in usr/lib/x 1.2/3", "CVE-1 in usr/lib/x 1.2/3"),
        (b"see https://avd.example/nvd/cve-1 now", "see https://avd.example/nvd/cve-1 now"),
        (b"reading /var/lib/site/db.json: broken", "reading …: broken"),
        (b"open='/home/op/.cache/x' /etc", "open='…' …"),
        (b"at unix:///run/docker.sock and tcp://10.0.0.1:2376, file:///etc/x", "at … and … …"),
        (b"a/b error:/srv/x", "a/b error:…"),
        (b"\x1b[31mred\x1b[0m\x00\x07 \xff\xfe caf\xc3\xa9", "red \ufffd\ufffd café"),
        (b"10%\r90%\r\n\n done ", "10%\n90%\ndone"),
        (b"", ""),
    ],
)
def test_what_a_client_reads(output: bytes, text: str):
    assert readable(output) == text


def test_the_last_lines_and_none_that_was_cut():
    lines = [f"line {number}" for number in range(100)]
    assert readable("\n".join(lines).encode()).splitlines() == lines[-KEPT_LINES:]
    long = b"x" * 500
    assert readable(b"\n".join([long] * 10)) == "\n".join([long.decode()] * 10)[-KEPT_TEXT:]
    cut = b"etc/shadow\n" + b"\n" * KEPT_BYTES + b"last line"
    assert readable(cut) == "last line"


@pytest.mark.parametrize("word", [b"a+", b"/", b" /a", b"\x1b[", b"http+", b"file:/", b"a://"])
def test_no_words_of_an_image_keep_a_worker_busy(word: bytes):
    """Half a second was spent on the first, with all other threads waiting."""
    begun = time.thread_time()
    readable(b"x\n" + (word * KEPT_BYTES)[: KEPT_BYTES - 3])
    assert time.thread_time() - begun < 0.15


def test_only_the_end_of_its_output_is_kept():
    script = f"echo one; echo two; head -c {KEPT_BYTES} /dev/zero | tr '\\0' '\\n'; echo last"
    assert scan(script).said == "last"


def test_a_worker_that_leaves_takes_its_scanners_along(tmp_path: Path):
    """A process whose main thread ends while another one scans."""
    program = f"""
import sys, threading, time
sys.path.insert(0, {os.getcwd()!r})
from workers import scanner
run = lambda: scanner.scan(["sh", "-c", "echo $$ > {tmp_path}/pid; sleep 60", "{{image}}"], "x", endpoint="e", tls=None, seconds=60)
threading.Thread(target=run, daemon=True).start()
while not scanner.Path("{tmp_path}/pid").exists() or not scanner.Path("{tmp_path}/pid").read_text().strip():
    time.sleep(0.02)
"""
    environment: dict[str, Any] = {**os.environ, "DJANGO_SETTINGS_MODULE": "compute_site.settings"}
    os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", program], environment)
    eventually(lambda: not alive(int((tmp_path / "pid").read_text())), 5)
