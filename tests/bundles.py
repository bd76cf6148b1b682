"""Bundles for function jobs, made in memory."""

import base64
import gzip
import io
import tarfile
import zipfile
from typing import Any


def tar_gz(files: dict[str, str], links: dict[str, str] | None = None) -> bytes:
    """A tar.gz of files (name → text) and symlinks (name → target), the same bytes each time."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        for name, to in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            archive.addfile(entry)
    return gzip.compress(target.getvalue(), mtime=0)


def zipped(files: dict[str, str]) -> bytes:
    """A zip of files (name → text)."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return target.getvalue()


def function(code: str | bytes, entry: str = "own:run", **more: Any) -> dict[str, Any]:
    """The `function` of a request: `code` is the module `own`, or a whole archive."""
    archive = code if isinstance(code, bytes) else tar_gz({"own.py": code})
    return {"bundle": base64.b64encode(archive).decode(), "entry": entry, **more}
