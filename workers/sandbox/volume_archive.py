"""The workspace of an engine whose files we cannot see: named volumes, filled and read through the engine's API.

Two volumes for an attempt (`<name>-data`, `<name>-control`) and one for the site with the launcher, read-only in the
job. The folders that belong to the job are put *into* the volumes once the container exists. Weaker than `shared`: the
size is only watched, no hosts file, every reading costs the engine some 50 ms, and a file has no link count.
"""

import hashlib
import io
import os
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from compute_site.core.errors import InfrastructureFailed
from workers.sandbox.docker import EngineClient, NameTaken
from workers.sandbox.marker import LARGEST, Marker, parse_marker
from workers.sandbox.outputs import OutputLimits, Outputs, Sink
from workers.sandbox.spec import CONTROL_PATH, DATA_PATH, LABEL_PREFIX, LAUNCHER_FOLDER
from workers.sandbox.tar import Malformed, SkipTooLarge, TarReader
from workers.sandbox.tar_outputs import read_tar
from workers.sandbox.workspace import CONTROL_FILES, Stream, Trace, volume

PARTS = ("data", "control")
FILL_WAIT = 5.0  # seconds that another worker is given to fill the launcher's volume

_filled: set[tuple[str, str]] = set()  # (endpoint, volume) seen complete by this process


class ArchiveWorkspace:
    """See `Workspace`. The container of the attempt carries the workspace's name; `image_id` is any local image."""

    def __init__(self, name: str, *, site: str, client: EngineClient, launcher: str, image_id: str) -> None:
        self.name = name
        self._site = site
        self._client = client
        self._launcher = launcher
        self._image_id = image_id
        self._content: tuple[bytes, bytes] | None = None

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
        """Makes the volumes and holds the content until `after_create`. `disk_mib` is the watchdog's business.

        A file that names the resolvers cannot be mounted from a volume: a job here gets no network.
        """
        if resolvers:
            raise InfrastructureFailed("cannot_start", "no network where files go through the engine's API")
        self._fill_launcher()
        for part in PARTS:
            self._client.create_volume(f"{self.name}-{part}", {LABEL_PREFIX + "site": self._site})
        self._content = (_data_archive(uid, inputs, code or {}, job_json), _control_archive(uid))

    def mounts(self) -> list[dict[str, Any]]:
        """Volumes: the launcher's read-only, data and control writable. No hosts file: a volume is never one file."""
        return [
            volume(self._launcher_volume, LAUNCHER_FOLDER, read_only=True),
            volume(f"{self.name}-control", CONTROL_PATH, read_only=False),
            volume(f"{self.name}-data", DATA_PATH, read_only=False),
        ]

    def after_create(self, client: EngineClient, container_id: str) -> None:
        """Puts the content in. Only while the container's status is `created`; `prepare` comes first."""
        if self._content is None:
            raise InfrastructureFailed("storage_failed", "the workspace was not prepared by this worker")
        for path, content in zip((DATA_PATH, CONTROL_PATH), self._content, strict=True):
            client.put_archive(container_id, path, content)

    def read_log(self, stream: Stream, offset: int, limit: int) -> bytes:
        """Reads through the beginning of the file up to the offset."""
        return self._read(stream, offset, limit)

    def marker(self) -> Marker | None:
        """Reads the marker file."""
        return parse_marker(self._read("marker", 0, LARGEST + 1))

    def used_bytes(self) -> int:
        """What the engine counts in the two volumes; for many jobs use `EngineClient.volume_sizes` once."""
        sizes = self._client.volume_sizes()
        return sum(sizes.get(f"{self.name}-{part}", 0) for part in PARTS)

    def outputs(self, limits: OutputLimits, sink: Sink) -> Outputs:
        """One pass over one stream. Raises InfrastructureFailed when container or folder are gone."""
        with self._client.get_archive(self.name, f"{DATA_PATH}/outputs") as source:
            if source is None:
                raise InfrastructureFailed("storage_failed", f"workspace {self.name} is gone")
            try:
                return read_tar("outputs", source, limits, sink)
            except Malformed as error:
                raise InfrastructureFailed("storage_failed", f"outputs: {error}") from error

    def destroy(self) -> None:
        """Removes both volumes. Raises InfrastructureFailed while a container holds one."""
        removed = [self._client.remove_volume(f"{self.name}-{part}") for part in PARTS]
        if not all(removed):
            raise InfrastructureFailed("storage_failed", f"workspace {self.name} is still in use")

    def absent(self) -> bool:
        """Neither volume is there."""
        return not any(self._client.has_volume(f"{self.name}-{part}") for part in PARTS)

    @property
    def _launcher_volume(self) -> str:
        return launcher_volume(self._site, self._launcher)

    def _fill_launcher(self) -> None:
        """After: the launcher's volume is complete. It first exists together with a container that is there until
        the volume is full, so a volume without that container is a full one."""
        name = self._launcher_volume
        if (self._client.endpoint, name) in _filled and self._client.has_volume(name):
            return
        setup = f"{name}-setup"
        if not self._client.has_volume(name) or not self._gone_within(setup, FILL_WAIT):
            # A name taken: left by a worker that died, or it is slow. The same content once more does no harm.
            with suppress(NameTaken):
                self._client.create(setup, self._setup_body(name))
            self._client.put_archive(
                setup, LAUNCHER_FOLDER, _launcher_archive(Path(self._launcher).read_bytes())
            )
            self._client.remove(setup)
        _filled.add((self._client.endpoint, name))

    def _setup_body(self, name: str) -> dict[str, Any]:
        mounts = [volume(name, LAUNCHER_FOLDER, read_only=False)]
        host = {"Mounts": mounts, "ReadonlyRootfs": True, "NetworkMode": "none"}
        return {
            "Image": self._image_id,
            "Entrypoint": ["launcher"],
            "NetworkDisabled": True,
            "Labels": {LABEL_PREFIX + "setup": self._site},
            "HostConfig": host,
        }

    def _gone_within(self, container: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._client.inspect(container) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _read(self, name: str, offset: int, limit: int) -> bytes:
        with self._client.get_archive(self.name, f"{CONTROL_PATH}/{name}") as source:
            if source is None:
                return b""
            reader = TarReader(source, 0)
            try:
                member = next(iter(reader), None)
                if member is None or member.kind != "file":
                    return b""
                while offset and (passed := reader.read(min(offset, 1 << 18))):
                    offset -= len(passed)
                return reader.read(min(limit, 1 << 30))
            except (Malformed, SkipTooLarge):  # it grew or the engine broke off: the next reading tells
                return b""


def launcher_volume(site: str, launcher: str) -> str:
    """Name of the volume with the launcher at this path: another content is another volume."""
    found = os.stat(launcher)
    return f"cs-{site}-launcher-{_digest(launcher, found.st_size, found.st_mtime_ns)[:16]}"


@lru_cache(maxsize=4)
def _digest(path: str, size: int, changed_ns: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def traces(client: EngineClient, site: str) -> list[Trace]:
    """Every volume of the site's workspaces on the engine; the launcher's own is not one."""
    names = client.list_volumes(site)
    return sorted(
        (Trace(name.rpartition("-")[0], "volume", name) for name in names), key=lambda trace: trace.where
    )


def _data_archive(uid: int, inputs: Mapping[str, bytes], code: Mapping[str, bytes], job_json: bytes) -> bytes:
    files = {f"inputs/{name}": content for name, content in inputs.items()} | {"job.json": job_json}
    files |= {f"code/{name}": content for name, content in code.items()}
    return _archive(
        [("inputs", 0o755, 0), ("outputs", 0o700, uid), *([("code", 0o755, 0)] if code else [])],
        [(name, content, 0o444, 0) for name, content in files.items()],
    )


def _control_archive(uid: int) -> bytes:
    return _archive([], [(name, b"", 0o600, uid) for name in CONTROL_FILES])


def _launcher_archive(launcher: bytes) -> bytes:
    return _archive([], [("launcher", launcher, 0o555, 0)])


def _archive(folders: list[tuple[str, int, int]], files: list[tuple[str, bytes, int, int]]) -> bytes:
    """A tar file of folders (name, mode, owner) and files (name, content, mode, owner)."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, mode, owner in folders:
            archive.addfile(_entry(name, mode, owner, tarfile.DIRTYPE))
        for name, content, mode, owner in files:
            entry = _entry(name, mode, owner, tarfile.REGTYPE)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _entry(name: str, mode: int, owner: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.uid, entry.gid = mode, kind, owner, owner
    return entry
