"""The gate: a small container that owns the network of one job, and the rules that close it.

Its first process is our launcher in another role (docker/launcher/gate.h). The job's container joins its network
namespace once the rules stand; they stay with the namespace, also when the gate dies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.sandbox.config import DETACHED, MIB, isolation, launcher_in
from workers.sandbox.spec import LABEL_PREFIX

SUFFIX = "-gate"
READY = "gate: ready"
# What is never reached, whatever the operator names besides: private, shared, link-local (with the metadata service of
# clouds), loopback, special, benchmark, test, relay, multicast and reserved addresses. The gate adds its own network.
CLOSED = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
)
# A gate sleeps in less than a MiB, but the runtime needs room to start it. Nothing of it counts as the job's.
MEMORY_MIB = 32
PIDS = 32
NO_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}


@dataclass(frozen=True, slots=True)
class GateSpec:
    """What one gate is: whose, on which network (id), with what closed and whom to ask for names."""

    labels: Mapping[str, str]
    image_id: str
    network: str
    cores: tuple[int, ...]
    resolvers: tuple[str, ...]
    closed: tuple[str, ...]
    ipv6: bool  # whether the engine's kernel has it, so that it can be switched off
    runtime: str = "runc"


def gate_name(container_name: str) -> str:
    """The name of the gate of the job's container with this name."""
    return container_name + SUFFIX


def gate_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The job's own labels, by which a sweep finds the gate too, and one that tells it apart."""
    return {**labels, f"{LABEL_PREFIX}gate": "1"}


def build_gate(
    spec: GateSpec, mounts: Sequence[Mapping[str, Any]], *, cgroup_parent: str | None
) -> dict[str, Any]:
    """The body of `POST /containers/create` for a gate. `mounts`: the launcher's alone."""
    closed = ",".join(sorted({*CLOSED, *spec.closed}))
    return {
        "Image": spec.image_id,
        "User": "0:0",
        "Env": [],
        "Entrypoint": [launcher_in(mounts)],
        "Cmd": ["gate", ",".join(spec.resolvers), closed],
        "WorkingDir": "/",
        "Hostname": "job",
        "Domainname": "",
        "Labels": dict(spec.labels),
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "StopTimeout": 1,
        **dict.fromkeys(DETACHED, False),
        "HostConfig": {
            "Mounts": [dict(mount) for mount in mounts],
            "LogConfig": {"Type": "json-file", "Config": {"max-file": "1", "max-size": "16k"}},
            "NetworkMode": spec.network,
            **isolation(spec.runtime),
            "CapAdd": ["CAP_NET_ADMIN"],
            **({"Sysctls": NO_IPV6} if spec.ipv6 else {}),
            "CpusetCpus": ",".join(map(str, sorted(spec.cores))),
            "Memory": MEMORY_MIB * MIB,
            "MemorySwap": MEMORY_MIB * MIB,
            "PidsLimit": PIDS,
            **({"CgroupParent": cgroup_parent} if cgroup_parent else {}),
        },
    }
