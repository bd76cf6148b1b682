"""Outputs by content: stored once under their sha256, listed in a manifest, removed when nobody refers to them."""

import hashlib
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

from django.core.files.storage import FileSystemStorage, default_storage

from compute_site.core.canonical import canonical
from jobs.models import Artifact
from jobs.outcome import StoredFile

BLOCK = 1 << 20
# Content that nothing refers to may belong to an attempt that is not settled yet: it is left alone for this long.
GRACE_SECONDS = 3600
FOLDER = "sha256"


class ContentMismatch(Exception):
    """The stream was shorter, longer or other than its size and sha256 say; nothing was stored."""


def storage_key(sha256: str) -> str:
    """Where content lies in the storage."""
    return f"{FOLDER}/{sha256[:2]}/{sha256[2:]}"


def store_output(content: BinaryIO, sha256: str, size: int) -> str:
    """Store a stream of `size` bytes under its hash, read in blocks; returns its key.

    Content that is there already is not read, only kept fresh. A crash leaves at most a temporary file, never half a
    content. Raises ContentMismatch, or OSError when the storage fails; then nothing was stored.
    """
    key = storage_key(sha256)
    path = _path(key)
    if _freshen(path, size):
        return key
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with temporary.open("xb") as target:
            _copy(content, target, sha256, size)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return key


def open_artifact(artifact: Artifact) -> IO[bytes]:
    """The stored content, to be read and closed by the caller. Raises FileNotFoundError when it is gone."""
    return default_storage.open(storage_key(artifact.sha256), "rb")


def read_content(sha256: str) -> bytes:
    """Stored content as a whole: for small ones. Raises FileNotFoundError when it is gone."""
    with default_storage.open(storage_key(sha256), "rb") as content:
        return bytes(content.read())


def build_manifest(
    exit_code: int | None, files: Iterable[StoredFile], refused: Iterable[Mapping[str, str]] = ()
) -> tuple[dict[str, Any], str]:
    """The manifest and the sha256 of its canonical JSON; the order in which the files come does not matter."""
    manifest: dict[str, Any] = {
        "version": 1,
        "exit_code": exit_code,
        "files": [
            {"path": file.path, "size": file.size, "sha256": file.sha256}
            for file in sorted(files, key=lambda file: file.path)
        ],
        "refused": sorted((dict(entry) for entry in refused), key=lambda entry: sorted(entry.items())),
    }
    return manifest, hashlib.sha256(canonical(manifest)).hexdigest()


def remove_unreferenced(hashes: Iterable[str], *, before: float) -> int:
    """Remove those contents that no artifact refers to and that were not stored or asked for since `before`.

    `before` is a time in seconds since the epoch. Safe beside attempts that are storing the same content: it is first
    moved aside, then judged, and put back when somebody has freshened it in between. Returns how many were removed.
    """
    wanted = set(hashes)
    used = set(Artifact.objects.filter(sha256__in=wanted).values_list("sha256", flat=True))
    return sum(_remove(_path(storage_key(sha256)), before) for sha256 in wanted - used)


def stored_hashes() -> Iterable[list[str]]:
    """The hashes of all stored contents, folder by folder; for the sweep and for fsck."""
    root = _path(FOLDER)
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        yield [folder.name + file.name for file in folder.iterdir() if not file.name.startswith(".")]


def remove_strays(*, now: float | None = None) -> int:
    """Remove contents that attempts stored and never settled, and temporary files of crashed ones, after the grace."""
    before = (time.time() if now is None else now) - GRACE_SECONDS
    removed = 0
    for hashes in stored_hashes():
        removed += remove_unreferenced(hashes, before=before)
    for temporary in _path(FOLDER).glob("*/.*"):
        if temporary.stat().st_mtime < before:
            temporary.unlink(missing_ok=True)
    return removed


def _path(key: str) -> Path:
    storage = default_storage
    if not isinstance(
        storage, FileSystemStorage
    ):  # a storage elsewhere needs its own way to rename and to freshen
        raise NotImplementedError("contents are stored in a local folder")
    return Path(storage.path(key))


def _freshen(path: Path, size: int) -> bool:
    """Whether the content is there and whole; then no sweep takes it before the grace is over."""
    try:
        os.utime(path)
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _copy(content: BinaryIO, target: BinaryIO, sha256: str, size: int) -> None:
    digest, left = hashlib.sha256(), size
    while left and (block := content.read(min(BLOCK, left))):
        digest.update(block)
        target.write(block)
        left -= len(block)
    if left or content.read(1) or digest.hexdigest() != sha256:
        raise ContentMismatch(f"content is not the {size} bytes with sha256 {sha256}")


def _remove(path: Path, before: float) -> bool:
    aside = path.with_name(f".{path.name}.old")
    try:
        if path.stat().st_mtime >= before:
            return False
        path.replace(aside)
        if aside.stat().st_mtime >= before and not path.exists():
            aside.replace(path)
            return False
        aside.unlink()
    except FileNotFoundError:
        return False
    return True
