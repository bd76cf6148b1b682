"""Which environment variables a client may set, and which of an image's are taken away."""

import re
from collections.abc import Mapping

# LD_* and GLIBC_* change what a loader does before the first line of a program, GPU hooks of the host included;
# NVIDIA_* asks such hooks for devices; DOCKER_* steers Docker's own tools; PYTHON* the runner of function jobs.
REFUSED_OF_CLIENTS = ("LD_", "GLIBC_", "NVIDIA_", "DOCKER_", "PYTHON")
# An image's PYTHON* steers only its own interpreter, so it stays.
TAKEN_FROM_IMAGES = ("LD_", "GLIBC_", "NVIDIA_", "DOCKER_")
RESERVED = frozenset({"JOB_ID", "JOB_INPUTS", "JOB_OUTPUTS", "JOB_FILE"})

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
MAX_COUNT = 256
MAX_VALUE = 32 * 1024
MAX_TOTAL = (
    96 * 1024
)  # bytes; the kernel's limit on one string is 128 KiB, on everything a quarter of the stack


def is_text(value: str, limit: int) -> bool:
    """Whether `value` can pass through JSON, Go and execve unchanged: UTF-8, no NUL, at most `limit` bytes."""
    try:
        return "\0" not in value and len(value.encode()) <= limit
    except UnicodeEncodeError:
        return False


def problems(env: Mapping[str, str]) -> list[str]:
    """What is wrong with a client's variables, one line each; empty when all may be set."""
    found = [line for name, value in env.items() for line in _problems_of(name, value)]
    if len(env) > MAX_COUNT:
        found.append(f"more than {MAX_COUNT} environment variables")
    if not found and sum(len(name) + len(value.encode()) + 2 for name, value in env.items()) > MAX_TOTAL:
        found.append(f"environment variables take more than {MAX_TOTAL} bytes together")
    return found


def _problems_of(name: str, value: str) -> list[str]:
    if not isinstance(name, str) or not NAME.match(name):
        return [f"environment variable {name!r:.80} has no valid name"]
    if name.startswith(REFUSED_OF_CLIENTS) or name in RESERVED:
        return [f"environment variable {name} may not be set"]
    if not isinstance(value, str) or not is_text(value, MAX_VALUE):
        return [f"environment variable {name} is no text without NUL of at most {MAX_VALUE} bytes"]
    return []


def taken_away(image_env: tuple[str, ...]) -> list[str]:
    """Names of an image's variables that are unset in its containers, in order, each once."""
    names = dict.fromkeys(entry.partition("=")[0] for entry in image_env)
    return [name for name in names if name.startswith(TAKEN_FROM_IMAGES)]
