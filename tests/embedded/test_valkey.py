import subprocess
import sys
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from compute_site.embedded import valkey
from compute_site.embedded.paths import Places
from compute_site.embedded.ports import free_port
from compute_site.embedded.valkey import Valkey
from tests.embedded.waiting import gone


def test_answers_only_with_the_password_and_keeps_nothing(places: Places):
    server = Valkey(places, use_existing=False)
    server.start()
    try:
        client = redis.Redis.from_url(server.url)
        assert client.ping()
        assert client.config_get("save") == {"save": ""}
        client.set("key", "value")
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=server._port, retry=Retry(NoBackoff(), 0)).ping()
        password = server.url.split(":")[2].split("@")[0]
        argv = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert password not in argv
    finally:
        server.stop()
    assert not server.ready()
    server.stop()  # Safe to repeat.

    server.start()
    try:
        assert redis.Redis.from_url(server.url).get("key") is None
    finally:
        server.stop()


def test_a_port_taken_in_between_is_no_failure(places: Places, monkeypatch: pytest.MonkeyPatch):
    first = Valkey(places, use_existing=False)
    first.start()
    free = free_port
    ports = iter([first._port])
    monkeypatch.setattr(valkey, "free_port", lambda: next(ports, None) or free())
    second = Valkey(Places(places.root / "second"), use_existing=False)
    (places.root / "second").mkdir()
    try:
        second.start()
        assert second._port != first._port
        assert second.ready()
    finally:
        second.stop()
        first.stop()


def test_dies_with_the_process_that_started_it(places: Places):
    code = (
        "import sys, os\n"
        "from pathlib import Path\n"
        "from compute_site.embedded.paths import Places\n"
        "from compute_site.embedded.valkey import Valkey\n"
        f"server = Valkey(Places(Path({str(places.root)!r})), use_existing=False)\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout.splitlines()[-1])
    assert gone(pid)
