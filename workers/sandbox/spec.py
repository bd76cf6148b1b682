"""What one container may be: everything that is decided before it is created, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

LABEL_PREFIX = "compute-site."
LAUNCHER_PATH = "/.site/launcher"
LAUNCHER_FOLDER = "/.site/bin"  # where the launcher comes in a volume, which is a folder and never one file
CONTROL_PATH = "/.site/control"
DATA_PATH = "/data"


@dataclass(frozen=True, slots=True)
class Spec:
    """One attempt's container. Amounts are in MiB, durations in seconds, `log_cap` in bytes for each stream."""

    site: str  # short site id, [a-z0-9]{1,12}
    job: str  # UUIDs as text
    attempt: str
    token: str  # fencing token
    nonce: str  # tells our container from a stranger's with the same name
    name: str
    image_id: str  # "sha256:..."
    argv: tuple[str, ...]  # what the launcher runs: a list, never a shell string
    env: Mapping[str, str]
    uid: int
    cores: tuple[int, ...]
    memory_mib: int
    disk_mib: int
    max_duration: int
    log_cap: int
    device_uuids: tuple[str, ...] = ()  # those that NVIDIA's request hands out
    device_files: tuple[tuple[str, str], ...] = ()  # of others: /dev/... and its permissions (r, w, rw)
    groups: tuple[int, ...] = ()  # of the host, that may open these files
    device_env: Mapping[str, str] = field(default_factory=dict)
    gate: str = ""  # id of the container that owns its network; empty: it has none
    stop_grace: int = 10
    runtime: str = "runc"

    def behind(self, gate: str) -> "Spec":
        """The same with the network of this gate."""
        return replace(self, gate=gate)

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which a sweep finds this container and a worker proves that it is its own."""
        names = ("site", "job", "attempt", "token", "nonce")
        return labels_of({name: getattr(self, name) for name in names})


def labels_of(identity: Mapping[str, str]) -> dict[str, str]:
    """Labels of ours, by their short names."""
    return {LABEL_PREFIX + name: text for name, text in identity.items()}


def container_name(site: str, attempt: str) -> str:
    """The container's name: the real fence against two starts of one attempt."""
    return f"cs-{site}-{attempt.replace('-', '')}"


def final_argv(
    image_entrypoint: Sequence[str],
    image_command: Sequence[str],
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
) -> tuple[str, ...]:
    """What runs, by Docker's own rule: an entrypoint of the job's discards the image's entrypoint and command.

    Empty when neither the job nor the image says what to run: the caller ends the job as `image_refused`.
    """
    if entrypoint:
        return (*entrypoint, *command)
    return (*image_entrypoint, *(command or image_command))
