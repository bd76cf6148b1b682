"""Whether a job behind a gate reaches nothing that is closed: one small job looks, under the full profile.

Nothing that the engine says of itself is believed here either: the job sends datagrams, and the kernel's refusals count.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from compute_site.core.errors import SiteError
from workers.sandbox.config import DETACHED, MIB, isolation
from workers.sandbox.docker import EngineClient, EngineFacts
from workers.sandbox.gate import MEMORY_MIB, PIDS, gate_labels, gate_name
from workers.sandbox.probe import NoReport, Trial, Way, probe_name, smallest
from workers.sandbox.spec import LAUNCHER_PATH, labels_of
from workers.sandbox.workspace import Workspace, bind

SAMPLES = (
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.11",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.0.1",
    "224.0.0.1",
)
SECONDS = 20.0
# The report of probe.py, and of all that could be sent to. The second way binds the interface: then no route is asked.
PROGRAM = """
import json, os, socket, sys
asked = json.loads(sys.argv[1])
routes = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
gateways = {socket.inet_ntoa(int(row[2], 16).to_bytes(4, "little")) for row in routes if int(row[2], 16)}
interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]

def refused(address, port, interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            if interface:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sock.sendto(b"", (address, port))
        except PermissionError:
            return True
        except OSError:
            return False
    return False

ways = [(address, interface) for address in [*asked["closed"], *gateways] for interface in ["", *interfaces]]
report = {
    "nonce": open("/data/inputs/nonce").read(),
    "device": os.stat("/data").st_dev,
    "gateways": sorted(gateways),
    "reached": sorted({address for address, interface in ways if not refused(address, 9, interface)}),
    "shut": [address for address in asked["open"] if refused(address, 53, "")],
}
with open("/data/outputs/probe.json", "w") as file:
    json.dump(report, file)
"""


class NoNetwork(SiteError):
    """The engine cannot grant a network; the message says why."""


def host_addresses(client: EngineClient, *, site: str, launcher: str, image: str) -> list[str]:
    """The IPv4 addresses of the engine's host, which no job is to reach. Raises NoNetwork, AttemptFailed.

    Told by our launcher in the host's own network: where the worker stands need not be that.
    """
    name = probe_name(site)
    body = _addresses_body(client, site, launcher, image)
    container = client.create(name, body)
    try:
        client.start(container)
        client.call("POST", f"/containers/{container}/wait", timeout=SECONDS)
        ended, said = client.inspect(container), client.log(container)
    finally:
        client.remove(name)
    if ended is None or ended.exit_code != 0 or not said.split():
        raise NoNetwork(f"the host's addresses could not be read: {said.strip() or 'nothing was said'}")
    return sorted(set(said.split()))


def _addresses_body(client: EngineClient, site: str, launcher: str, image: str) -> dict[str, Any]:
    found = client.image(image)
    if found is None:
        raise NoNetwork(f"the engine has no image {image} to try it with")
    return {
        "Image": found.id,
        "User": "65534:65534",
        "Entrypoint": [LAUNCHER_PATH],
        "Cmd": ["addresses"],
        "Labels": labels_of({"site": site}),
        **dict.fromkeys(DETACHED, False),
        "HostConfig": {
            "Mounts": [bind(launcher, LAUNCHER_PATH, read_only=True)],
            "LogConfig": {"Type": "json-file", "Config": {"max-file": "1", "max-size": "64k"}},
            "NetworkMode": "host",
            **isolation("runc"),
            "Memory": MEMORY_MIB * MIB,
            "MemorySwap": MEMORY_MIB * MIB,
            "PidsLimit": PIDS,
        },
    }


def try_network(
    client: EngineClient,
    open_gate: Callable[[str, dict[str, str], str], str],
    *,
    facts: EngineFacts,
    workspace: Callable[[str, str], Workspace],
    closed: Sequence[str],
    resolvers: Sequence[str],
    site: str,
    launcher: str,
    image: str,
) -> None:
    """Run the looking job behind a gate of its own; leaves nothing but the site's network on the engine.

    `open_gate` (name, labels, nonce) stands up a gate and returns its id. `closed`: what must not be reached besides
    the samples. Raises NoNetwork, AttemptFailed.
    """
    found = client.image(image)
    if found is None:
        raise NoNetwork(f"the engine has no image {image} to try it with")
    name = probe_name(site)
    asked = json.dumps({"closed": [*SAMPLES, *closed], "open": list(resolvers)})
    spec = smallest(site, name, found, argv=("python3", "-I", "-c", PROGRAM, asked))
    try:
        gate = open_gate(gate_name(name), gate_labels(spec.labels), spec.nonce)
        trial = Trial(client, workspace(name, found.id), spec.behind(gate), found, facts)
        report = trial.run(Way("shared", "watchdog", False), resolvers=resolvers)
    except NoReport as error:
        raise NoNetwork(f"a job behind a gate did not work: {error}") from error
    finally:
        client.remove(gate_name(name))
    if report["reached"] or not report["gateways"]:
        raise NoNetwork(f"a job behind its gate reaches {', '.join(report['reached']) or 'no gateway'}")
    if report["shut"]:
        raise NoNetwork(f"a job cannot ask {', '.join(report['shut'])}: name resolvers that are not closed")
