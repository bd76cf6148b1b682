"""The client against a real engine, and against engines that are gone, silent or broken."""

import os
import queue
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compute_site.core.errors import ExecutionFailed, InfrastructureFailed
from tests.workers.sandbox.conftest import SITE, Maker, Run
from tests.workers.sandbox.registry import running_registry
from tests.workers.sandbox.silent import answer, engine_that_says
from workers.sandbox.docker import EngineClient, EngineUnreachable, Event, NameTaken
from workers.sandbox.events import EventStream

pytestmark = pytest.mark.engine

ABSENT = "cs-absent-" + uuid.uuid4().hex


def test_an_engine_describes_itself(engine_client: EngineClient) -> None:
    facts = engine_client.facts()
    assert facts.engine_id
    assert facts.cpu_count == os.cpu_count()
    assert 0 < facts.memory_mib <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert facts.architecture == {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    assert facts.seccomp
    assert facts.cgroup_version in (1, 2)
    assert "runc" in facts.runtimes


def test_local_images(engine_client: EngineClient, sandbox_image: str) -> None:
    facts = engine_client.image(sandbox_image)
    assert facts is not None
    assert facts.id.startswith("sha256:")
    assert facts.size > 2**20
    assert engine_client.image(facts.id) == facts
    assert engine_client.image("compute-site/never:made") is None


@pytest.mark.parametrize("name", ["Abc/def", "a..b/x", "a-.b/x", "x/" * 140 + "y", "x" * 300])
def test_what_no_image_can_be_called_is_none_of_the_engine_s_and_the_job_s_fault(
    engine_client: EngineClient, name: str
) -> None:
    """As silence it would be asked for again for ever, by a job that holds its cores."""
    assert engine_client.image(name) is None
    with pytest.raises(ExecutionFailed, match="image_not_found"):
        engine_client.pull(name, time.monotonic() + 30)


def test_a_container_from_create_to_removal(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, argv=("python3", "-c", "print('hi'); raise SystemExit(3)"))
    assert run.client.inspect(run.spec.name) is None
    run.create()
    created = run.client.inspect(run.spec.name)
    assert created is not None
    assert (created.id, created.status, created.exit_code, created.started_at) == (
        run.id,
        "created",
        None,
        None,
    )
    assert run.spec.labels.items() <= created.labels.items()
    run.start()
    ended = run.wait()
    assert (ended.exit_code, ended.oom_killed, ended.pid) == (3, False, 0)
    assert ended.started_at is not None
    assert ended.finished_at is not None
    assert ended.started_at.tzinfo is not None
    assert run.log == b"hi\n"
    assert run.client.remove(run.id)
    assert run.client.inspect(run.id) is None
    assert run.client.remove(run.id)


def test_a_taken_name_is_told_with_its_owner(make: Maker, sandbox_image: str) -> None:
    first = make(sandbox_image)
    first.create()
    second = make(sandbox_image, name=first.spec.name)
    with pytest.raises(NameTaken) as caught:
        second.create()
    assert caught.value.facts is not None
    assert caught.value.facts.id == first.id
    assert caught.value.facts.label("nonce") == first.spec.nonce != second.spec.nonce
    again = first.client.inspect(first.spec.name)
    assert again is not None
    assert (again.id, again.status) == (first.id, "created")


def test_a_container_started_twice_runs_its_job_once(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, argv=("python3", "-c", "print('once')")).whole()
    assert run.facts is not None
    assert run.facts.status != "created"  # by which a caller knows not to start it
    log, marker = run.log, run.marker
    run.client.start(run.id)
    assert run.wait().exit_code == 125
    assert (run.log, run.marker) == (log, marker)


def test_signals(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, argv=("python3", "-c", "import time; time.sleep(60)"))
    run.create()
    assert not run.client.signal(run.id, "TERM")
    run.start()
    assert run.client.signal(run.id, "TERM")
    assert run.wait().exit_code == 128 + 15
    assert not run.client.signal(run.id, "KILL")
    assert not run.client.signal(ABSENT, "KILL")


def test_removal_kills_what_runs(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, argv=("python3", "-c", "import time; time.sleep(60)"))
    run.create()
    run.start()
    assert run.client.remove(run.id)
    assert run.client.inspect(run.id) is None
    assert run.client.remove(ABSENT)


def test_a_listing_has_the_sites_containers_in_every_state(make: Maker, sandbox_image: str) -> None:
    created, ended, other = make(sandbox_image), make(sandbox_image), make(sandbox_image, site="other")
    created.create()
    ended.whole()
    other.create()
    listed = {facts.id: facts for facts in ended.client.list_site(SITE)}
    assert (listed[created.id].status, listed[ended.id].status) == ("created", "exited")
    assert listed[ended.id].name == ended.spec.name
    assert listed[ended.id].label("attempt") == ended.spec.attempt
    assert other.id not in listed


def test_an_image_in_the_way_is_the_jobs_fault(
    make: Maker, sandbox_image: str, engine_client: EngineClient
) -> None:
    run = make(sandbox_image)
    # A mount of a folder onto a file, as with an image whose /data is a file.
    run.config["HostConfig"]["Mounts"][2]["Target"] = "/usr/bin/python3"
    run.create()
    with pytest.raises(ExecutionFailed, match="image_refused"):
        engine_client.start(run.id)
    facts = engine_client.inspect(run.id)
    assert facts is not None
    assert (facts.status, facts.exit_code) == ("created", None)
    assert facts.error


def test_what_the_site_gets_wrong_is_not_the_jobs_fault(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image)
    run.config["HostConfig"]["Mounts"][0]["Source"] = "/nowhere/at/all"
    with pytest.raises(InfrastructureFailed, match="cannot_start"):
        run.create()
    run.config["Image"] = "sha256:" + "0" * 64
    with pytest.raises(InfrastructureFailed, match="cannot_start"):
        run.create()
    with pytest.raises(InfrastructureFailed, match="cannot_start"):
        run.client.start(ABSENT)


# -- events


class Listener:
    """Iterates a stream in its own thread, as the watcher does."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.seen: queue.Queue[Event | None] = queue.Queue()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self) -> None:
        for event in self.stream:
            self.seen.put(event)
        self.seen.put(None)

    def next(self) -> Event | None:
        return self.seen.get(timeout=10)

    def ended(self) -> bool:
        self.thread.join(5)
        return not self.thread.is_alive()


@pytest.fixture
def listener(engine_client: EngineClient) -> Iterator[Listener]:
    listener = Listener(engine_client.events(SITE))
    yield listener
    listener.stream.close()
    assert listener.ended()


def test_events_of_the_site_and_of_nobody_else(make: Maker, sandbox_image: str, listener: Listener) -> None:
    other = make(sandbox_image, site="other").whole()
    run = make(sandbox_image, argv=("python3", "-c", "raise SystemExit(3)")).whole()
    started, died = listener.next(), listener.next()
    assert started is not None
    assert died is not None
    assert (started.kind, started.container_id, started.exit_code) == ("start", run.id, None)
    assert (died.kind, died.container_id, died.exit_code) == ("die", run.id, 3)
    assert died.label("attempt") == run.spec.attempt
    assert died.label("token") == "7"
    assert died.time_ns > started.time_ns > 0
    assert other.client.remove(other.id)
    assert listener.seen.empty()


def test_memory_kills_are_told(make: Maker, sandbox_image: str, listener: Listener) -> None:
    make(sandbox_image, argv=("python3", "-c", "x = bytearray(1 << 30)")).whole()
    kinds = []
    while "die" not in kinds:
        event = listener.next()
        assert event is not None
        kinds.append(event.kind)
    assert "oom" in kinds


def test_closing_ends_a_blocked_stream_and_can_be_repeated(engine_client: EngineClient) -> None:
    listener = Listener(engine_client.events(SITE))
    time.sleep(0.05)  # let it block
    listener.stream.close()
    listener.stream.close()
    assert listener.next() is None


def test_the_death_of_an_engine_ends_the_stream_and_is_never_an_answer(tmp_path: Path) -> None:
    with private_engine(tmp_path) as own:
        client = EngineClient(own.docker_host, timeout=5)
        listener = Listener(client.events(SITE))
        assert client.inspect(ABSENT) is None
        own.kill()
        assert listener.next() is None
        with pytest.raises(EngineUnreachable):
            client.inspect(ABSENT)
        own.start(fresh=False)
        assert client.inspect(ABSENT) is None
        assert client.list_site(SITE) == []


@contextmanager
def private_engine(folder: Path) -> Iterator[Any]:
    dockerd = pytest.importorskip("compute_site.embedded.dockerd")
    if os.getuid() != 0:
        pytest.skip("only root can start an engine of its own")
    dockerd.provide_programs()
    with tempfile.TemporaryDirectory(prefix="cs-") as sockets:  # a socket's path must be short
        engine = dockerd.PrivateEngine(folder / "engine", uuid.uuid4().hex[:8], sockets=Path(sockets))
        try:
            engine.start()
            yield engine
        finally:
            engine.stop()


# -- silence

CALLS: dict[str, Callable[[EngineClient], Any]] = {
    "facts": lambda client: client.facts(),
    "image": lambda client: client.image("x"),
    "pull": lambda client: client.pull("x", time.monotonic() + 60),
    "create": lambda client: client.create("x", {}),
    "start": lambda client: client.start("x", timeout=0.3),
    "inspect": lambda client: client.inspect("x"),
    "signal": lambda client: client.signal("x"),
    "remove": lambda client: client.remove("x"),
    "list_site": lambda client: client.list_site("x"),
    "events": lambda client: client.events("x"),
    "put_archive": lambda client: client.put_archive("x", "/", b""),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_engine_that_is_not_there_raises_for_every_call(name: str, tmp_path: Path) -> None:
    client = EngineClient(f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineUnreachable):
        CALLS[name](client)


@pytest.mark.parametrize("name", ["image", "inspect", "list_site", "signal", "create", "start"])
def test_an_engine_that_hangs_raises_after_the_timeout(name: str, tmp_path: Path) -> None:
    with engine_that_says(tmp_path, b"", close=False) as endpoint:
        client = EngineClient(endpoint, timeout=0.3)
        before = time.monotonic()
        with pytest.raises(EngineUnreachable):
            CALLS[name](client)
        assert time.monotonic() - before < 5


BROKEN = {
    "closes without a word": b"",
    "breaks off": answer("200 OK", b'{"Id": "x", "Sta', 500),
    "talks nonsense": answer("200 OK", b"<html>"),
    "has an inner error": answer("500 Internal Server Error", b'{"message": "boom"}'),
    "is starting": answer("503 Service Unavailable", b"{}"),
    "is another server": answer("404 Not Found", b"<html>nothing here</html>"),
    "knows no such call": answer("404 Not Found", b'{"message": "page not found"}'),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("name", ["inspect", "image", "list_site"])
def test_a_broken_answer_is_silence_and_never_gone(name: str, reply: bytes, tmp_path: Path) -> None:
    with engine_that_says(tmp_path, reply, close=True) as endpoint, pytest.raises(EngineUnreachable):
        CALLS[name](EngineClient(endpoint, timeout=2))


def test_an_image_that_the_engine_fails_to_remove_is_kept(tmp_path: Path) -> None:
    """As silence it would end the whole pass, each time before any other image is tried."""
    with engine_that_says(tmp_path, BROKEN["has an inner error"], close=True) as endpoint:
        assert EngineClient(endpoint, timeout=2).remove_image("x") is False


def test_threads_share_a_client(make: Maker, sandbox_image: str, engine_client: EngineClient) -> None:
    run: Run = make(sandbox_image)
    run.create()
    wrong: list[object] = []

    def look() -> None:
        for _ in range(20):
            facts = engine_client.inspect(run.id)
            if facts is None or facts.id != run.id or engine_client.inspect(ABSENT) is not None:
                wrong.append(facts)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- pulls


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with running_registry() as address:
        yield address


def test_a_pull_by_tag_and_by_digest(engine_client: EngineClient, registry: str) -> None:
    api: Any = engine_client.api
    facts = engine_client.pull(f"{registry}/good:1", time.monotonic() + 30)
    try:
        assert (facts.command, facts.env) == (("/hello",), ("A=1",))
        assert engine_client.image(f"{registry}/good:1") == facts
        digests = api.inspect_image(facts.id)["RepoDigests"]
        assert engine_client.pull(digests[0], time.monotonic() + 30).id == facts.id
    finally:
        api.remove_image(facts.id, force=True)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("missing:1", ExecutionFailed, "image_not_found"),
        ("private:1", ExecutionFailed, "image_unauthorized"),
        ("broken:1", InfrastructureFailed, "registry_unavailable"),
    ],
)
def test_a_refused_pull_says_whose_fault_it_is(
    engine_client: EngineClient, registry: str, name: str, kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        engine_client.pull(f"{registry}/{name}", time.monotonic() + 30)


def test_no_registry_and_no_reference(engine_client: EngineClient) -> None:
    with pytest.raises(InfrastructureFailed, match="registry_unavailable"):
        engine_client.pull("127.0.0.1:1/x:1", time.monotonic() + 30)
    with pytest.raises(ExecutionFailed, match="image_not_found"):
        engine_client.pull("NO//reference", time.monotonic() + 30)


def test_a_pull_ends_at_its_deadline(engine_client: EngineClient, registry: str) -> None:
    before = time.monotonic()
    with pytest.raises(InfrastructureFailed, match="pull_timeout"):
        engine_client.pull(f"{registry}/slow:1", before + 0.5)
    assert time.monotonic() - before < 4
