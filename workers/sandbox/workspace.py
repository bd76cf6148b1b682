"""The workspace of one attempt: how files get into its container and out of it, in two ways behind one interface.

`shared`: worker and engine see the same file system at the same path. `archive`: everything goes through the engine's
API. Which one an engine can have is found out by experiment (`probe.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from workers.sandbox.docker import EngineClient
from workers.sandbox.marker import Marker
from workers.sandbox.outputs import OutputLimits, Outputs, Sink

HOSTS_PATH = "/etc/hosts"
# Without a network of Docker's there is no hosts file either; with this one `localhost` resolves.
HOSTS = b"127.0.0.1 localhost job\n::1 localhost job\n"
RESOLV_CONF_PATH = "/etc/resolv.conf"
Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
CONTROL_FILES = (*STREAMS, "marker")

Mode = Literal["shared", "archive"]
Disk = Literal["loop", "watchdog"]
Kind = Literal["folder", "mount", "loop", "volume"]


@dataclass(frozen=True, slots=True)
class Trace:
    """Something of a workspace that exists on the engine: whose, what, and where."""

    name: str
    kind: Kind
    where: str


class Workspace(Protocol):
    """One per attempt. Every call is idempotent by the attempt's name; nothing is remembered between calls."""

    name: str

    def prepare(
        self,
        *,
        uid: int,
        disk_mib: int,
        inputs: Mapping[str, bytes],
        job_json: bytes,
        code: Mapping[str, bytes] | None = None,
        resolvers: Sequence[str] = (),
    ) -> None:
        """Makes what must exist before the container is created. Redone from scratch when it was not finished.

        `inputs`, and `code` of a function job: name to content, read-only for the job. `resolvers`: the addresses that
        a job with a network asks for names. Raises InfrastructureFailed.
        """

    def mounts(self) -> list[dict[str, Any]]:
        """Entries for `HostConfig.Mounts`, to be used after `prepare`."""

    def after_create(self, client: EngineClient, container_id: str) -> None:
        """Finishes the workspace between create and start."""

    def read_log(self, stream: Stream, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of a log from `offset`; empty at its end, or when there is none yet."""

    def marker(self) -> Marker | None:
        """The launcher's last word; None when it is empty, absent or nonsense. Trust it only after the death."""

    def used_bytes(self) -> int:
        """Disk that the job takes now, its logs included."""

    def outputs(self, limits: OutputLimits, sink: Sink) -> Outputs:
        """Reads what the job left in its outputs folder. Only after its container is dead."""

    def destroy(self) -> None:
        """Removes everything, whatever state it is in. After the container is gone."""

    def absent(self) -> bool:
        """Whether nothing of it is left on the engine: folder, mount, loop device, volume."""


def bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    """A bind mount that must exist already (`Mounts`, never `Binds`: those would create the source)."""
    mount: dict[str, Any] = {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
    return mount | {"BindOptions": {"Propagation": "rprivate"}}


def volume(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    """A named volume. NoCopy: an empty volume would otherwise be filled with what the image has at that place."""
    mount: dict[str, Any] = {"Type": "volume", "Source": source, "Target": target, "ReadOnly": read_only}
    return mount | {"VolumeOptions": {"NoCopy": True}}
