"""A job behind a gate: it reaches what is outside, and nothing that is closed; however it asks, and whatever dies."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compute_site.core.errors import InfrastructureFailed
from tests.workers.sandbox.conftest import PROGRAMS, SITE, Maker, Run, made_spec
from tests.workers.sandbox.outside import PORT, Outside, let_through, outside
from workers.gates import stand
from workers.sandbox import readback
from workers.sandbox.docker import EngineClient
from workers.sandbox.gate import CLOSED, GateSpec, build_gate, gate_labels, gate_name
from workers.sandbox.network_probe import host_addresses
from workers.sandbox.networks import find_network, provide_network, remove_network
from workers.sandbox.spec import LAUNCHER_PATH
from workers.sandbox.workspace import bind

pytestmark = pytest.mark.engine

WAIT = ("python3", "-c", "import time; time.sleep(60)")
LISTEN = f"""
import select, socket
socks = [socket.socket(type=kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
for sock in socks:
    sock.bind(("0.0.0.0", {PORT}))
socks[0].listen()
print("listening", flush=True)
if select.select(socks, [], [], 60)[0]:
    print("REACHED", flush=True)
"""
KNOCK = f"""
import socket, sys
socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], {PORT}))
"""
CANARY = """
import socket
print([name for _, name in socket.if_nameindex()])
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.11", 9))
except PermissionError:
    print("closed")
"""


@pytest.fixture(scope="module")
def world() -> Iterator[Outside]:
    if os.getuid() != 0:
        pytest.skip("needs root: a network of its own cannot be made without it")
    with outside() as there:
        yield there


@pytest.fixture(scope="module")
def network(engine_client: EngineClient, world: Outside) -> str:
    found = provide_network(engine_client, SITE)
    let_through(f"br-{found[:12]}")
    return found


@pytest.fixture(scope="module")
def closed(engine_client: EngineClient, network: str, launcher: str, sandbox_image: str) -> tuple[str, ...]:
    """The addresses of this machine, as the engine's host tells them."""
    return tuple(host_addresses(engine_client, site=SITE, launcher=launcher, image=sandbox_image))


Gated = Callable[..., Run]


@pytest.fixture
def bodies() -> dict[str, dict[str, Any]]:
    """What the gates of a test were asked to be, by name."""
    return {}


@pytest.fixture
def gated(
    bodies: dict[str, dict[str, Any]],
    make: Maker,
    engine_client: EngineClient,
    network: str,
    closed: tuple[str, ...],
    launcher: str,
    sandbox_image: str,
    world: Outside,
) -> Iterator[Gated]:
    """Make a run behind a gate of its own, which stands when this returns; `image=` is the gate's as well."""

    def maker(**changes: Any) -> Run:
        spec = made_spec(image_id="", **changes)
        image = engine_client.image(sandbox_image)
        assert image is not None
        given = GateSpec(
            labels=gate_labels(spec.labels),
            image_id=image.id,
            network=network,
            cores=spec.cores,
            resolvers=(world.peer,),
            closed=closed,
            ipv6=Path("/proc/sys/net/ipv6").exists(),
        )
        name = gate_name(spec.name)
        body = build_gate(given, [bind(launcher, LAUNCHER_PATH, read_only=True)], cgroup_parent=None)
        bodies[name] = body
        gate = stand(engine_client, name, body, nonce=spec.nonce)
        same = {key: getattr(spec, key) for key in ("job", "attempt", "nonce", "name")}
        return make(sandbox_image, resolvers=(world.peer,), gate=gate, **(changes | same))

    yield maker
    for name in bodies:
        assert engine_client.remove(name)


def addresses_of(client: EngineClient, gate: str) -> tuple[str, str]:
    """Its own, and that of the bridge."""
    raw = client.inspect_raw(gate)
    assert raw is not None
    (found,) = raw["NetworkSettings"]["Networks"].values()
    return found["IPAddress"], found["Gateway"]


def pid_of(client: EngineClient, container: str) -> int:
    facts = client.inspect(container)
    assert facts is not None
    return facts.pid


def seen_within(pid: int) -> list[str]:
    """What the canary says in a namespace, and which interfaces are there."""
    command = ["nsenter", f"--target={pid}", "--net", sys.executable, "-I", "-c", CANARY]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_hostile_job_reaches_the_outside_and_nothing_else(
    gated: Gated, engine_client: EngineClient, world: Outside, closed: tuple[str, ...]
) -> None:
    neighbour = gated(argv=("python3", "-c", LISTEN), uid=300_001)
    neighbour.create()
    neighbour.start()
    until(lambda: neighbour.workspace.read_log("stdout", 0, 99) == b"listening\n")
    beside, gateway = addresses_of(engine_client, neighbour.spec.gate)
    assert {gateway, world.host} <= set(closed)
    named = {f"host {address}": address for address in closed} | {
        "neighbour": beside,
        "metadata": "169.254.169.254",
        "engine's resolver": "127.0.0.11",
        "loopback": "127.0.0.2",
        "ten": "10.1.2.3",
        "172": "172.30.1.1",
        "192": "192.168.1.1",
        "shared": "100.64.1.1",
        "test": "198.18.1.1",
        "reserved": "240.1.1.1",
        "nothing": "0.1.1.1",
    }
    del named["loopback"]  # its own: nobody else's is there
    asked = json.dumps({"closed": named, "peer": world.peer, "other": world.other, "port": PORT})
    program = (PROGRAMS / "network.py").read_text()
    with closing(socket.socket()) as listening, closing(socket.socket(type=socket.SOCK_DGRAM)) as heard:
        for sock in (listening, heard):
            sock.bind(("0.0.0.0", PORT))
            sock.setblocking(False)
        listening.listen()
        run = gated(argv=("python3", "-c", program, asked)).whole()
        with pytest.raises(BlockingIOError):
            listening.accept()
        with pytest.raises(BlockingIOError):
            heard.recv(99)
    assert run.errors == b""
    told = json.loads(run.log)
    assert {name: got for name, (came, got) in told.items() if came == "ok"} == {
        "peer tcp": "tcp",
        "peer udp": "udp",
        "other tcp": "tcp",
        "peer, by its device": "tcp",
        "names of the resolver, udp": "udp",
        "names of the resolver, tcp": "tcp",
        "own loopback": "own",
        "/etc/resolv.conf": f"nameserver {world.peer}\n",
        "localhost": "127.0.0.1",
        "hostname": "job",
    }
    sent = {name: got for name, (came, got) in told.items() if "udp" in name and came != "ok"}
    assert set(sent.values()) == {"EPERM"}, sent  # by the rules, and not because nobody answered
    for before in ([], ["ip", "netns", "exec", world.interface]):  # nor do the host and the outside come in
        subprocess.run([*before, sys.executable, "-I", "-c", KNOCK, beside], check=True)
    with pytest.raises(TimeoutError):
        socket.create_connection((beside, PORT), timeout=0.5)
    assert neighbour.workspace.read_log("stdout", 0, 99) == b"listening\n"


def test_the_rules_stay_when_the_gate_dies_and_the_way_out_goes(
    gated: Gated, engine_client: EngineClient
) -> None:
    run = gated(argv=WAIT)
    run.create()
    run.start()
    pid = pid_of(engine_client, run.id)
    assert seen_within(pid) == ["['lo', 'eth0']", "closed"]
    assert engine_client.signal(run.spec.gate, "KILL")
    until(lambda: seen_within(pid) == ["['lo']", "closed"])
    facts = engine_client.inspect(run.id)
    assert facts is not None
    assert facts.status == "running"


def test_a_job_does_not_start_behind_a_dead_gate(gated: Gated, engine_client: EngineClient) -> None:
    run = gated(argv=WAIT)
    run.create()
    assert engine_client.signal(run.spec.gate, "KILL")
    until(lambda: getattr(engine_client.inspect(run.spec.gate), "status", "") == "exited")
    with pytest.raises(InfrastructureFailed) as refused:
        engine_client.start(run.id)
    assert refused.value.reason == "cannot_start"
    facts = engine_client.inspect(run.id)
    assert facts is not None
    assert facts.status == "created"


def test_the_launcher_starts_nothing_where_no_rules_stand(
    make: Maker, engine_client: EngineClient, network: str, sandbox_image: str
) -> None:
    """Whatever went wrong before: a namespace that is not closed is seen by the job's own first process."""
    image = engine_client.image(sandbox_image)
    assert image is not None
    body = {"Image": image.id, "Cmd": list(WAIT), "HostConfig": {"NetworkMode": network}}
    name = f"cs-{SITE}-open"
    try:
        container = engine_client.create(name, body)
        engine_client.start(container)
        run = make(sandbox_image, argv=("python3", "-c", "print('ran')"), gate=container).whole()
    finally:
        engine_client.remove(name)
    assert run.facts is not None
    assert (run.facts.exit_code, run.log) == (125, b"")
    assert run.marker is not None
    assert (run.marker.status, run.marker.refused) == ("refused", "network")


def test_the_gate_has_nothing_left_and_is_small(gated: Gated, engine_client: EngineClient) -> None:
    run = gated(argv=WAIT)
    status = Path(f"/proc/{pid_of(engine_client, run.spec.gate)}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Threads"]) == ("1", "2", "1")
    assert int(fields["VmRSS"].split()[0]) < 2048
    raw = engine_client.inspect_raw(run.spec.gate)
    assert raw is not None
    host = raw["HostConfig"]
    assert (host["CapAdd"], host["CapDrop"], host["ReadonlyRootfs"]) == (["CAP_NET_ADMIN"], ["ALL"], True)
    assert (host["Memory"], host["PidsLimit"], host["CpusetCpus"]) == (32 << 20, 32, "0")
    assert raw["Mounts"][0]["RW"] is False
    assert len(raw["Mounts"]) == 1


def test_a_gate_is_found_again_started_once_and_never_a_stranger_s(
    gated: Gated, engine_client: EngineClient, bodies: dict[str, dict[str, Any]]
) -> None:
    run = gated(argv=WAIT)
    ((name, body),) = bodies.items()
    assert stand(engine_client, name, body, nonce=run.spec.nonce) == run.spec.gate
    with pytest.raises(InfrastructureFailed, match="a stranger's container"):
        stand(engine_client, name, body, nonce="another")
    engine_client.signal(run.spec.gate, "KILL")
    until(lambda: getattr(engine_client.inspect(run.spec.gate), "status", "") == "exited")
    started = engine_client.inspect_raw(name)
    assert started is not None
    with pytest.raises(InfrastructureFailed, match="its gate is exited"):
        stand(engine_client, name, body, nonce=run.spec.nonce)
    again = engine_client.inspect_raw(name)
    assert again is not None
    assert again["State"]["StartedAt"] == started["State"]["StartedAt"]


@pytest.mark.parametrize("changed", ["CapAdd", "NetworkMode", "Privileged", "Cmd"])
def test_a_gate_that_is_not_as_asked_never_starts(
    changed: str, engine_client: EngineClient, network: str, launcher: str, sandbox_image: str
) -> None:
    spec = made_spec(image_id="")
    image = engine_client.image(sandbox_image)
    assert image is not None
    given = GateSpec(gate_labels(spec.labels), image.id, network, (0,), ("1.1.1.1",), (), False)
    body = build_gate(given, [bind(launcher, LAUNCHER_PATH, read_only=True)], cgroup_parent=None)
    name = gate_name(spec.name)
    other: dict[str, Any] = {
        "CapAdd": ["CAP_NET_ADMIN", "CAP_NET_RAW"],
        "NetworkMode": "bridge",
        "Privileged": True,
        "Cmd": ["gate", "1.1.1.1", "10.0.0.0/8"],
    }
    host = body["HostConfig"] if changed in body["HostConfig"] else body
    made = body | {"HostConfig": {**body["HostConfig"]}}
    (made["HostConfig"] if host is body["HostConfig"] else made)[changed] = other[changed]
    try:
        engine_client.create(name, made)
        with pytest.raises(InfrastructureFailed, match=changed):
            stand(engine_client, name, body, nonce=spec.nonce)
        facts = engine_client.inspect(name)
        assert facts is not None
        assert facts.status == "created"
    finally:
        engine_client.remove(name)


def test_what_is_closed_is_closed_whatever_the_operator_names(network: str) -> None:
    given = GateSpec(
        {}, "sha256:0", network, (0, 2), ("1.1.1.1", "9.9.9.9"), ("11.0.0.0/24", "10.0.0.0/8"), True
    )
    body = build_gate(given, [bind("/x", LAUNCHER_PATH, read_only=True)], cgroup_parent="/own")
    role, resolvers, closed = body["Cmd"]
    assert (role, resolvers) == ("gate", "1.1.1.1,9.9.9.9")
    assert set(closed.split(",")) == {*CLOSED, "11.0.0.0/24"}
    without = build_gate(replace(given, ipv6=False), [], cgroup_parent=None)["HostConfig"]
    assert "Sysctls" not in without  # a kernel without IPv6 has no such switch
    assert body["HostConfig"]["Sysctls"]


def test_the_site_s_network_is_made_once_and_made_anew(engine_client: EngineClient) -> None:
    site = f"{SITE[:10]}n"
    first = provide_network(engine_client, site)
    try:
        assert provide_network(engine_client, site) == first
        raw = engine_client.get(f"/networks/{first}")
        assert (raw["Driver"], raw["EnableIPv6"], raw["Internal"]) == ("bridge", False, False)
        assert raw["Options"]["com.docker.network.bridge.enable_icc"] == "false"
        assert remove_network(engine_client, site)
        assert find_network(engine_client, site) is None
        assert provide_network(engine_client, site) != first
    finally:
        assert remove_network(engine_client, site)
    assert remove_network(engine_client, site)


def test_the_receipt_tells_the_gate(gated: Gated, engine_client: EngineClient) -> None:
    run = gated(argv=WAIT)
    run.create()
    made = engine_client.inspect_raw(run.id)
    assert made is not None
    assert readback.effective(made)["host"]["NetworkMode"] == f"container:{run.spec.gate}"
    changed = {**made, "HostConfig": {**made["HostConfig"], "NetworkMode": "host"}}
    assert readback.differences(run.config, changed) == ["HostConfig.NetworkMode: 'host'"]
