"""A result by its content: exit code and every output file. Its hash is what replicas are compared by. Pure."""

import hashlib
from collections.abc import Iterable
from typing import Any

from compute_site.core.canonical import canonical
from workers.sandbox.outputs import OutputLimits, path_fault

MAX_BYTES = 4 * 1024 * 1024  # of all files of a result together: they travel inside the request
MAX_FILES = 200
LOG_BYTES = 256 * 1024  # of each stream, from its beginning: beside the result, under no signature of its own


class BadManifest(ValueError):
    """Not a manifest: the message says what is wrong with it."""


def build(exit_code: int, files: Iterable[tuple[str, int, str]]) -> tuple[dict[str, Any], str]:
    """The manifest of (path, size in bytes, sha256 in hex) and the sha256 of its canonical JSON."""
    rows = [{"path": path, "size": size, "sha256": sha256} for path, size, sha256 in sorted(files)]
    manifest: dict[str, Any] = {"version": 1, "exit_code": exit_code, "files": rows}
    return manifest, hashlib.sha256(canonical(manifest)).hexdigest()


def check(manifest: Any) -> str:
    """The sha256 of a manifest that came from outside. Raises BadManifest."""
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), list):
        raise BadManifest("A manifest has version, exit_code and files.")
    if type(manifest.get("exit_code")) is not int or not 0 <= manifest["exit_code"] <= 255:
        raise BadManifest("exit_code is a whole number from 0 to 255.")
    if len(manifest["files"]) > MAX_FILES:
        raise BadManifest(f"At most {MAX_FILES} files.")
    files = [_file(row) for row in manifest["files"]]
    if len({path for path, _, _ in files}) != len(files):
        raise BadManifest("A path comes twice.")
    if sum(size for _, size, _ in files) > MAX_BYTES:
        raise BadManifest(f"At most {MAX_BYTES} bytes together.")
    built, digest = build(manifest["exit_code"], files)
    if built != manifest:
        raise BadManifest("It has other fields, another version, or its files are not sorted by path.")
    return digest


def _file(row: Any) -> tuple[str, int, str]:
    if not isinstance(row, dict) or set(row) != {"path", "size", "sha256"}:
        raise BadManifest("A file has path, size and sha256.")
    path, size, sha256 = row["path"], row["size"], row["sha256"]
    if not isinstance(path, str) or not isinstance(sha256, str) or type(size) is not int or size < 0:
        raise BadManifest("path and sha256 are text, size is a whole number.")
    if fault := path_fault(tuple(path.encode().split(b"/")), OutputLimits()):
        raise BadManifest(f"path: {fault}.")
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise BadManifest("sha256 is 64 hexadecimal digits.")
    return path, size, sha256
