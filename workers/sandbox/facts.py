"""What Docker says about images, containers, engines and events, in our own words."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workers.sandbox.spec import LABEL_PREFIX

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """A local image. `size` in bytes; `env` as `NAME=value`; `volumes` are absolute paths.

    `tags` and `digests` are the engine's names of it: `name:tag` and `name@sha256:…`.
    """

    id: str
    architecture: str
    os: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    env: tuple[str, ...]
    volumes: tuple[str, ...]
    user: str
    size: int
    working_dir: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container as inspected. `exit_code` and the times are None where it has not ended or started yet."""

    id: str
    name: str
    status: str  # created, running, paused, restarting, removing, exited, dead
    exit_code: int | None
    oom_killed: bool
    error: str
    started_at: datetime | None
    finished_at: datetime | None
    labels: dict[str, str]
    pid: int

    def label(self, name: str) -> str:
        """One of our own labels by its short name (`attempt`, `nonce`, ...), empty when absent."""
        return self.labels.get(LABEL_PREFIX + name, "")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine as it describes itself. `disk_mib` is None where its data folder cannot be seen from here."""

    engine_id: str
    version: str
    api_version: str
    cpu_count: int
    memory_mib: int
    disk_mib: int | None
    architecture: str
    os: str
    data_root: str
    cgroup_driver: str
    cgroup_version: int
    storage_driver: str
    seccomp: bool
    live_restore: bool
    runtimes: tuple[str, ...]
    security: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """`start`, `die` or `oom` of one of the site's containers; `exit_code` only with `die`."""

    kind: str
    container_id: str
    time_ns: int
    exit_code: int | None
    labels: dict[str, str]

    def label(self, name: str) -> str:
        """One of our own labels by its short name, empty when absent."""
        return self.labels.get(LABEL_PREFIX + name, "")


def image_facts(raw: Mapping[str, Any]) -> ImageFacts:
    """From `GET /images/{name}/json`."""
    config = raw.get("Config") or {}
    return ImageFacts(
        id=raw["Id"],
        architecture=raw.get("Architecture", ""),
        os=raw.get("Os", ""),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        env=tuple(config.get("Env") or ()),
        volumes=tuple(sorted(config.get("Volumes") or ())),
        user=config.get("User") or "",
        size=raw.get("Size") or 0,
        working_dir=config.get("WorkingDir") or "",
        tags=tuple(raw.get("RepoTags") or ()),
        digests=tuple(raw.get("RepoDigests") or ()),
    )


def container_facts(raw: Mapping[str, Any]) -> ContainerFacts:
    """From `GET /containers/{id}/json`."""
    state = raw["State"]
    ended = state["Status"] in ("exited", "dead")
    return ContainerFacts(
        id=raw["Id"],
        name=raw["Name"].lstrip("/"),
        status=state["Status"],
        exit_code=state["ExitCode"] if ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=(state.get("Error") or "")[:4000],
        started_at=moment(state.get("StartedAt")),
        finished_at=moment(state.get("FinishedAt")) if ended else None,
        labels=dict(raw["Config"].get("Labels") or {}),
        pid=state.get("Pid") or 0,
    )


def listed_facts(raw: Mapping[str, Any]) -> ContainerFacts:
    """From one row of `GET /containers/json`, which knows the status and labels but neither exit code nor times."""
    return ContainerFacts(
        id=raw["Id"],
        name=(raw["Names"] or [""])[0].lstrip("/"),
        status=raw["State"],
        exit_code=None,
        oom_killed=False,
        error="",
        started_at=None,
        finished_at=None,
        labels=dict(raw.get("Labels") or {}),
        pid=0,
    )


def engine_facts(raw: Mapping[str, Any], api_version: str, disk_mib: int | None) -> EngineFacts:
    """From `GET /info`. Seccomp counts as active only with a profile that confines."""
    security = tuple(raw.get("SecurityOptions") or ())
    seccomp = [option for option in security if option.startswith("name=seccomp")]
    return EngineFacts(
        engine_id=raw["ID"],
        version=raw.get("ServerVersion", ""),
        api_version=api_version,
        cpu_count=raw["NCPU"],
        memory_mib=raw["MemTotal"] // 2**20,
        disk_mib=disk_mib,
        architecture=ARCHITECTURES.get(raw["Architecture"], raw["Architecture"]),
        os=raw["OSType"],
        data_root=raw.get("DockerRootDir", ""),
        cgroup_driver=raw.get("CgroupDriver", ""),
        cgroup_version=int(raw.get("CgroupVersion") or 1),
        storage_driver=raw.get("Driver", ""),
        seccomp=bool(seccomp) and not any("unconfined" in option for option in seccomp),
        live_restore=bool(raw.get("LiveRestoreEnabled")),
        runtimes=tuple(sorted(raw.get("Runtimes") or ())),
        security=security,
    )


def event(raw: Mapping[str, Any]) -> Event:
    """From one line of `GET /events`; Docker mixes labels and its own attributes in one map."""
    attributes = raw["Actor"].get("Attributes") or {}
    code = attributes.get("exitCode")
    return Event(
        kind=raw["Action"],
        container_id=raw["Actor"]["ID"],
        time_ns=raw["timeNano"],
        exit_code=int(code) if code is not None else None,
        labels={key: value for key, value in attributes.items() if key.startswith(LABEL_PREFIX)},
    )


def moment(text: str | None) -> datetime | None:
    """Docker's time (nanoseconds are cut to microseconds); its year 1 means never."""
    if not text or text.startswith("0001-"):
        return None
    return datetime.fromisoformat(text)


def unframed(raw: bytes) -> bytes:
    """The content of a log as the engine sends it: frames of 8 bytes (stream, size) and text."""
    parts, place = [], 0
    while place + 8 <= len(raw):
        size = int.from_bytes(raw[place + 4 : place + 8], "big")
        parts.append(raw[place + 8 : place + 8 + size])
        place += 8 + size
    return b"".join(parts)
