"""The workspace on a file system that the worker and the engine see at the same path.

`<state>/<site>/<name>/`: `disk.img` and `data/` (its mount point; a plain folder in watchdog mode), `control/` with the
two logs and the marker, `hosts`, and with a network `resolv.conf`. The job owns `data/outputs` and the three files of `control`, and nothing else.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from compute_site.core.errors import InfrastructureFailed
from workers.sandbox import loop
from workers.sandbox.docker import EngineClient
from workers.sandbox.marker import LARGEST, Marker, parse_marker
from workers.sandbox.outputs import OutputLimits, Outputs, Sink
from workers.sandbox.removal import delete_tree, measure_tree
from workers.sandbox.spec import CONTROL_PATH, DATA_PATH, LAUNCHER_PATH
from workers.sandbox.tree import FILE, FOLDER, read_tree
from workers.sandbox.workspace import (
    CONTROL_FILES,
    HOSTS,
    HOSTS_PATH,
    RESOLV_CONF_PATH,
    Disk,
    Stream,
    Trace,
    bind,
)

TEMPLATES = ".templates"


class SharedWorkspace:
    """See `Workspace`. `state_dir` is absolute and the same for the engine; `launcher` is a path of this machine."""

    def __init__(self, name: str, *, site: str, state_dir: str, launcher: str, disk: Disk) -> None:
        self.name = name
        self.disk = disk
        self._site = site_folder(state_dir, site)
        self._folder = self._site / name
        self._image = self._folder / "disk.img"
        self._data = self._folder / "data"
        self._control = self._folder / "control"
        self._ready = self._folder / "ready"
        self._launcher = launcher

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
        """Before: anything. After: the folder is complete, with the disk mounted. A complete one is left alone."""
        try:
            self._site.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone(create=True):
                if self._ready.exists() and self._mounted():
                    return
                self._clear()
                self._make_control(uid, resolvers)
                self._data.mkdir(mode=0o755)
                if self.disk == "loop":
                    loop.make_disk(self._image, disk_mib, self._site / TEMPLATES)
                    loop.mount_disk(self._image, self._data)
                    (self._data / "lost+found").rmdir()
                self._fill(uid, inputs, code or {}, job_json)
                _write(self._ready, b"", 0o600)
        except OSError as error:
            raise InfrastructureFailed(
                "storage_failed", f"workspace {self.name}: {error.strerror}"
            ) from error

    def mounts(self) -> list[dict[str, Any]]:
        """Bind mounts: launcher, hosts and resolv.conf (with a network) read-only, control and data writable."""
        resolv_conf = self._folder / "resolv.conf"
        names = [bind(str(resolv_conf), RESOLV_CONF_PATH, read_only=True)] if resolv_conf.exists() else []
        return [
            bind(self._launcher, LAUNCHER_PATH, read_only=True),
            bind(str(self._control), CONTROL_PATH, read_only=False),
            bind(str(self._data), DATA_PATH, read_only=False),
            bind(str(self._folder / "hosts"), HOSTS_PATH, read_only=True),
            *names,
        ]

    def after_create(self, client: EngineClient, container_id: str) -> None:
        """Nothing to do: the files are there."""

    def read_log(self, stream: Stream, offset: int, limit: int) -> bytes:
        """Reads at an offset; the folder is root's, so the file is the one that was made for the log."""
        return _read_at(self._control / stream, offset, limit)

    def marker(self) -> Marker | None:
        """Reads the marker file."""
        return parse_marker(_read_at(self._control / "marker", 0, LARGEST + 1))

    def used_bytes(self) -> int:
        """Blocks taken on the job's disk (loop) or below its folder (watchdog), and by its logs."""
        if not self._mounted():
            return 0
        logs = sum(os.stat(self._control / name).st_blocks * 512 for name in CONTROL_FILES)
        if self.disk == "watchdog":
            return logs + measure_tree(str(self._data / "outputs"))
        status = os.statvfs(self._data)
        return logs + (status.f_blocks - status.f_bfree) * status.f_frsize

    def device(self) -> int:
        """The device number under which this machine knows the job's disk."""
        return os.stat(self._data).st_dev

    def outputs(self, limits: OutputLimits, sink: Sink) -> Outputs:
        """Reads through a descriptor of the outputs folder. Raises InfrastructureFailed when the disk is gone.

        A disk that somebody unmounted in good order (a restart of the site) is mounted again.
        """
        if not self._mounted():
            if not (self._ready.exists() and self._image.exists()):
                raise InfrastructureFailed("storage_failed", f"workspace {self.name} is gone")
            loop.mount_disk(self._image, self._data)
        root = os.open(self._data / "outputs", FOLDER)
        try:
            return read_tree(root, limits, sink)
        finally:
            os.close(root)

    def destroy(self) -> None:
        """Unmount, unlink: on a loop disk no tree of the job's is ever walked."""
        try:
            with self._alone(create=False):
                self._clear()
                self._folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InfrastructureFailed(
                "storage_failed", f"workspace {self.name}: {error.strerror}"
            ) from error

    def absent(self) -> bool:
        """No folder (a mount cannot be there without it) and no loop device whose image lay in it."""
        return not self._folder.exists() and not any(loop.attached_below(self._folder))

    def _mounted(self) -> bool:
        return loop.is_mounted(self._data) if self.disk == "loop" else self._data.is_dir()

    def _make_control(self, uid: int, resolvers: Sequence[str]) -> None:
        self._control.mkdir(mode=0o711)
        self._control.chmod(0o711)
        for name in CONTROL_FILES:
            _write(self._control / name, b"", 0o600, uid)
        _write(self._folder / "hosts", HOSTS, 0o444)
        if resolvers:
            lines = [f"nameserver {address}\n" for address in resolvers]
            _write(self._folder / "resolv.conf", "".join(lines).encode(), 0o444)

    def _fill(
        self, uid: int, inputs: Mapping[str, bytes], code: Mapping[str, bytes], job_json: bytes
    ) -> None:
        self._data.chmod(0o755)
        _fill_folder(self._data / "inputs", inputs)
        if code:
            _fill_folder(self._data / "code", code)
        _write(self._data / "job.json", job_json, 0o444)
        outputs = self._data / "outputs"
        outputs.mkdir(mode=0o700)
        os.chown(outputs, uid, uid)

    def _clear(self) -> None:
        """Back to an empty folder, from any state. The disk is unmounted before anything below is touched."""
        self._ready.unlink(missing_ok=True)
        loop.unmount(self._data, self._image)
        for folder in (self._data, self._control):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                delete_tree(str(folder))
        for name in ("disk.img", "hosts", "resolv.conf"):
            (self._folder / name).unlink(missing_ok=True)

    @contextmanager
    def _alone(self, *, create: bool) -> Iterator[None]:
        """Holds the folder's lock: the owner of a lost lease may still be at work on the same attempt.

        Raises FileNotFoundError when the folder is not there and not to be made.
        """
        while True:
            if create:
                self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self._folder, FOLDER)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if os.fstat(lock).st_nlink:  # not destroyed while we waited
                    yield
                    return
            finally:
                os.close(lock)


def site_folder(state_dir: str, site: str) -> Path:
    """Where the workspaces of a site lie, without symlinks, as the kernel will name it."""
    return Path(os.path.realpath(state_dir)) / site


def traces(state_dir: str, site: str) -> list[Trace]:
    """Every folder, mount and loop device of the site's workspaces on this machine."""
    root = site_folder(state_dir, site)
    found = []
    with suppress(FileNotFoundError):
        found += [Trace(path.name, "folder", str(path)) for path in root.iterdir() if path.name != TEMPLATES]
    for place in loop.mounted_below(root):
        found.append(Trace(place.relative_to(root).parts[0], "mount", str(place)))
    for device, image in loop.attached_below(root):
        found.append(Trace(image.relative_to(root).parts[0], "loop", device))
    return sorted(found, key=lambda trace: (trace.name, trace.kind, trace.where))


def _fill_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    for name, content in files.items():
        _write(folder / name, content, 0o444)


def _write(path: Path, content: bytes, mode: int, uid: int | None = None) -> None:
    """A new file with exactly this mode, whatever the umask; never through something that is there already."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb", buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) or 0 :]
        if uid is not None:
            os.fchown(fd, uid, uid)
        os.fchmod(fd, mode)


def _read_at(path: Path, offset: int, limit: int) -> bytes:
    try:
        fd = os.open(path, FILE)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, limit, offset)
    finally:
        os.close(fd)
