"""Whole images into and out of an engine: built from a context, loaded from a file, packed into one."""

import io
import json
import shutil
import tarfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote

from compute_site.core.errors import InfrastructureFailed
from workers.sandbox import refusals
from workers.sandbox.connection import Body, EngineUnreachable, Refused, answered
from workers.sandbox.docker import PLAIN, EngineClient

TAR = {"Content-Type": "application/x-tar"}
SILENCE = 300.0  # seconds without a line after which a build or a load is given up


def build(
    client: EngineClient, reference: str, dockerfile: bytes, arguments: Mapping[str, str], deadline: float
) -> None:
    """Have the engine build the image, without a network for its steps; the base is pulled when it lacks it.

    The context is the Dockerfile and an empty folder `packages`. `deadline` is a value of `time.monotonic()`. Raises
    ExecutionFailed or InfrastructureFailed with the engine's sentence, EngineUnreachable.
    """
    params = {"t": reference, "buildargs": json.dumps(dict(arguments)), "networkmode": "none", "forcerm": "1"}
    _follow(client, "/build", params, _context(dockerfile), deadline)


def load(client: EngineClient, file: Path, deadline: float) -> None:
    """Give the engine the images of a file that `pack` wrote. Raises as `build` does."""
    with file.open("rb") as source:
        _follow(client, "/images/load", {"quiet": "1"}, source, deadline)


def pack(client: EngineClient, reference: str, target: Path) -> None:
    """Write the image with its tag to `target`, whole or not at all. Raises InfrastructureFailed, EngineUnreachable."""
    part = target.with_name(f".{target.name}.part")
    try:
        path = f"/images/{quote(reference, safe='/:@')}/get"
        response = client.call("GET", path, headers=PLAIN, stream=True, timeout=SILENCE)
        with closing(response), part.open("wb") as file:
            shutil.copyfileobj(cast("IO[bytes]", Body(response.raw)), file, 1 << 20)
        part.replace(target)
    except Refused as error:
        raise InfrastructureFailed("storage_failed", error.sentence) from error
    except OSError as error:
        raise InfrastructureFailed("storage_failed", f"{target}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _follow(
    client: EngineClient, path: str, params: Mapping[str, str], data: bytes | IO[bytes], deadline: float
) -> None:
    """Send a tar file and read what the engine says to its end: its failures come as lines of a good answer."""
    silence = max(0.1, min(SILENCE, deadline - time.monotonic()))
    try:
        response = client.call(
            "POST", path, params=params, data=data, headers=TAR, stream=True, timeout=silence
        )
        with closing(response), answered():
            refusals.follow_pull(response.iter_lines(), deadline)
    except Refused as error:
        raise refusals.of_pull(error.sentence) from error
    except EngineUnreachable as error:
        if time.monotonic() >= deadline:
            raise InfrastructureFailed("pull_timeout", "the deadline has passed") from error
        raise


def _context(dockerfile: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        folder = tarfile.TarInfo("packages")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(dockerfile)
        archive.addfile(entry, io.BytesIO(dockerfile))
    return target.getvalue()
