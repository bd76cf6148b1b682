"""The image of jobs that name none: makes sure that an engine has it, so that nobody has to think of it.

In this order: it is there; it was packed into the cache; names below `compute-site/` are in no registry and are built
from `docker/sandbox/Dockerfile`; others are pulled.
"""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from compute_site.core.errors import AttemptFailed, SiteError
from workers.models import ImageOrigin
from workers.sandbox import transfers
from workers.sandbox.connection import EngineUnreachable
from workers.sandbox.docker import EngineClient, ImageFacts

OURS = "compute-site/"
PACKED = "sandbox.tar"
NOTE = "sandbox.json"  # which image the packed one is


class NotProvided(SiteError):
    """The engine has no sandbox image and none could be made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Provided:
    """The image and, in words, where it came from; `origin` as its row has it, empty when it was there already."""

    image: ImageFacts
    how: str
    origin: str = ""


def provide_sandbox_image(
    client: EngineClient, wanted: str, *, base: str, dockerfile: Path, cache: Path | None, seconds: float
) -> Provided:
    """After: the engine has `wanted`, and the cache (None: there is none) has it packed. Quick when it is there.

    Raises NotProvided, or EngineUnreachable.
    """
    deadline = time.monotonic() + seconds
    provided = (
        _there(client, wanted, "there already")
        or _unpacked(client, wanted, cache, deadline)
        or _made(client, wanted, base, dockerfile, deadline)
    )
    if cache is not None:
        _keep(client, wanted, provided.image, cache)
    return provided


def _there(client: EngineClient, wanted: str, how: str, origin: str = "") -> Provided | None:
    image = client.image(wanted)
    return Provided(image, how, origin) if image is not None else None


def _unpacked(client: EngineClient, wanted: str, cache: Path | None, deadline: float) -> Provided | None:
    """From the cache, whose content is never trusted to be whole: a bad one is as none."""
    if cache is None or _noted(cache).get("reference") != wanted or not (cache / PACKED).exists():
        return None
    with suppress(AttemptFailed):
        transfers.load(client, cache / PACKED, deadline)
    return _there(client, wanted, "loaded from the cache", ImageOrigin.LOADED)


def _made(client: EngineClient, wanted: str, base: str, dockerfile: Path, deadline: float) -> Provided:
    try:
        if not wanted.startswith(OURS):
            return Provided(client.pull(wanted, deadline), "pulled", ImageOrigin.PULLED)
        transfers.build(client, wanted, dockerfile.read_bytes(), {"BASE": base}, deadline)
    except EngineUnreachable:
        raise
    except AttemptFailed as error:
        raise NotProvided(_way_out(wanted, base, error)) from error
    if (built := _there(client, wanted, f"built from {base}", ImageOrigin.BUILT)) is None:
        raise NotProvided(f"the engine built {wanted} from {base} and does not have it.")
    return built


def _way_out(wanted: str, base: str, error: AttemptFailed) -> str:
    if wanted.startswith(OURS):
        return (
            f"the engine has no image {wanted}, and it could not be built from {base}: {error}. Name a base image that the"
            f" engine has or can pull in SANDBOX_BASE, or make the image without a registry: docker/base/build {wanted}"
        )
    return (
        f"the engine has no image {wanted}, and it could not be pulled: {error}. Pull or load it into the engine, or name"
        " another one in SANDBOX_IMAGE."
    )


def _keep(client: EngineClient, wanted: str, image: ImageFacts, cache: Path) -> None:
    """Pack the image unless this one is packed. A full disk costs the cache, not the start."""
    note = {"reference": wanted, "id": image.id}
    if _noted(cache) == note and (cache / PACKED).exists():
        return
    with suppress(AttemptFailed, OSError):
        (cache / NOTE).unlink(missing_ok=True)
        transfers.pack(client, wanted, cache / PACKED)
        (cache / NOTE).write_text(json.dumps(note))


def _noted(cache: Path) -> dict[str, str]:
    try:
        found = json.loads((cache / NOTE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
