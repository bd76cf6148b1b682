"""What an engine's refusal means: whose fault it is, and whether trying again makes sense.

Docker answers with sentences, not codes. A sentence that we do not know is ours, never the job's: it is retried.
"""

import json
import logging
import time
from collections.abc import Iterable

from compute_site.core.errors import AttemptFailed, ExecutionFailed, InfrastructureFailed

log = logging.getLogger(__name__)

UNAUTHORIZED = (
    "unauthorized",
    "authentication required",
    "no basic auth",
    "access forbidden",
    "denied: requested access",
)
# Whatever the engine has, none of it is called so.
NO_NAME = ("invalid reference format", "repository name must")
NOT_FOUND = (
    *NO_NAME,
    "repository does not exist",
    "manifest unknown",
    "not found",
    "no such image",
    "no matching manifest",
    "name unknown",
    "unsupported manifest",
    "invalid repository name",
)
# Said before the two above are looked for: "dial tcp: lookup x: no such host: not found" is the network's fault.
UNREACHABLE = (
    "no such host",
    "connection refused",
    "i/o timeout",
    "timeout exceeded",
    "handshake",
    "x509",
    "toomanyrequests",
    "dial tcp",
)
FULL = "no space left"
DEVICE_FILE = "custom device"

# Ours even where a sentence below also matches.
OURS = (
    "cannot allocate memory",
    "deadline exceeded",
    "resource temporarily unavailable",
    "too many open files",
    "device driver",
    "nvidia",
    "cgroup",
)
# The image puts something in the way of a mount of ours, or is made for another machine. (The program is not in
# question here: the launcher is what starts, and it reports a program that cannot.)
THE_IMAGES = (
    "not a directory",
    "is a directory",
    "exec format error",
    "too many levels of symbolic links",
    "outside of rootfs",
    "inside /proc",
    "invalid volume specification",
)


def is_no_name(sentence: str) -> bool:
    """Whether the engine refused because no image can have the name that it was asked for."""
    return any(part in sentence.lower() for part in NO_NAME)


def of_pull(sentence: str) -> AttemptFailed:
    """The error to raise for a refused pull."""
    lower = sentence.lower()
    if FULL in lower:
        return InfrastructureFailed("disk_full", sentence)
    if any(part in lower for part in UNREACHABLE):
        return InfrastructureFailed("registry_unavailable", sentence)
    if any(part in lower for part in NOT_FOUND):
        return ExecutionFailed("image_not_found", sentence)
    if any(part in lower for part in UNAUTHORIZED):
        return ExecutionFailed("image_unauthorized", sentence)
    return InfrastructureFailed("registry_unavailable", sentence)


def of_start(sentence: str) -> AttemptFailed:
    """The error to raise for a refused create or start."""
    lower = sentence.lower()
    if DEVICE_FILE in lower:  # which files a device has is for operators alone
        log.error("the init of a device does not suit the engine's host: %s", sentence)
        return InfrastructureFailed("cannot_start", "a reserved device has no such device file on its host")
    if FULL in lower:
        return InfrastructureFailed("disk_full", sentence)
    if not any(part in lower for part in OURS) and any(part in lower for part in THE_IMAGES):
        return ExecutionFailed("image_refused", sentence)
    return InfrastructureFailed("cannot_start", sentence)


def split_reference(reference: str) -> tuple[str, str]:
    """Name, and tag or digest (`latest` when neither is given), as the engine's pull wants them."""
    name, separator, digest = reference.partition("@")
    if separator:
        return name, digest
    head, separator, tag = reference.rpartition(":")
    if not separator or "/" in tag:  # a colon before the last slash belongs to the registry's port
        return reference, "latest"
    return head, tag


def follow_pull(lines: Iterable[bytes], deadline: float) -> None:
    """Read a pull's progress to its end; raises what its error line means, or pull_timeout after `deadline`."""
    for line in lines:
        if time.monotonic() >= deadline:
            raise InfrastructureFailed("pull_timeout", "the deadline of the pull has passed")
        message = json.loads(line) if line else {}
        if "error" in message:
            raise of_pull(str(message["error"]))
