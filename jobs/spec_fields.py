"""How each field of a job request is read. A reader returns the value, or records a fault and returns what it can."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError

from environments.models import LABEL, MAX_LABEL_BYTES, MAX_LABELS, Tier

MAX_ARGUMENTS = 256
MAX_ARGUMENT_BYTES = 64 * 1024  # the sandbox takes more: the image may have an entrypoint of its own
MAX_VARIABLES = 128
MAX_VARIABLE_BYTES = 32 * 1024
MAX_VARIABLES_BYTES = 64 * 1024
MAX_INPUTS = 64
MAX_INPUT_BYTES = 1024 * 1024
MAX_OUTPUTS = 256
MAX_PATH_BYTES = 1024
MAX_RESOURCES = 64
MAX_SECONDS = 366 * 24 * 3600
MAX_AMOUNT = 2**63 - 1

SLUG = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
ENVIRONMENT = re.compile(rf"{SLUG}/{SLUG}\Z")
# [host[:port]/]path[:tag][@sha256:...], or the id of an image. A first part is a host by its dot, port or name alone.
LABELS = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
IMAGE = re.compile(
    rf"(?P<name>(?:(?:localhost|{LABELS}(?:\.{LABELS})+|{LABELS}(?=:))(?::[0-9]{{1,5}})?/)?{PART}(?:/{PART})*)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z"
)
MAX_IMAGE_NAME = 255  # characters, without tag and digest; engines take no more
INPUT_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
# They steer loaders, GPU hooks, Docker's tools and the runner, or are set by the site itself.
VARIABLES_REFUSED = ("LD_", "GLIBC_", "NVIDIA_", "DOCKER_", "PYTHON")
VARIABLES_RESERVED = frozenset({"JOB_ID", "JOB_INPUTS", "JOB_OUTPUTS", "JOB_FILE"})
RESOURCE = re.compile(rf"{SLUG}\Z")
SIZE = re.compile(r"([0-9]{1,12})(MiB|GiB|TiB)\Z")
MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}


class Faults(dict[str, list[ValidationError]]):
    """Path → what is wrong there. At most a hundred are kept: the answer to a hostile request stays small."""

    def add(self, path: str, message: str, *, code: str = "invalid") -> None:
        if len(self) < 100:
            self.setdefault(path[:512], []).append(ValidationError(message, code=code))

    def unknown(self, names: Iterable[object], known: Collection[str], path: str = "") -> None:
        """A fault for every name that is not `known`."""
        for name in names:
            if name not in known:
                where = step(str(name))
                self.add(f"{path}/{where}" if path else where, "Unknown field.", code="unknown_field")

    def error(self) -> ValidationError:
        return ValidationError(dict(self))


def step(name: str) -> str:
    """A key as one step of a JSON pointer."""
    return name.encode("utf-8", "backslashreplace").decode().replace("~", "~0").replace("/", "~1")


def text_fault(value: object, limit: int) -> str:
    """Why `value` cannot be kept as text of at most `limit` bytes (UTF-8), or an empty text."""
    if not isinstance(value, str):
        return "Not a string."
    if "\0" in value:
        return "Contains a NUL character."
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "Contains a lone surrogate, which is no character."
    return f"Longer than {limit} bytes." if size > limit else ""


def is_whole(value: object) -> bool:
    """A whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def environment(value: object, path: str, faults: Faults) -> Any:
    if fault := text_fault(value, 127):
        faults.add(path, fault)
    elif not ENVIRONMENT.match(str(value)) and not _is_uuid(value):
        faults.add(path, "Not the id of an environment, nor “engine/slug”.")
    return value


def image(value: object, path: str, faults: Faults) -> Any:
    if fault := text_fault(value, 512):
        faults.add(path, fault)
    elif not (found := IMAGE.match(str(value))) or len(found["name"]) > MAX_IMAGE_NAME:
        faults.add(path, "Not an image reference like name:tag, host/name@sha256:… or sha256:….")
    return value


def arguments(value: object, path: str, faults: Faults) -> Any:
    if not isinstance(value, list):
        faults.add(path, "Not a list of strings; a command is never split on spaces here.")
        return ()
    if len(value) > MAX_ARGUMENTS:
        faults.add(path, f"More than {MAX_ARGUMENTS} items.")
        return ()
    for position, item in enumerate(value):
        if fault := text_fault(item, MAX_ARGUMENT_BYTES - 1):
            faults.add(f"{path}/{position}", fault)
    if path == "entrypoint" and value and value[0] == "":
        faults.add(f"{path}/0", "The program to run has no name.")
    return tuple(value)


def check_argument_size(values: Mapping[str, Any], faults: Faults) -> None:
    """The kernel limits what a program is started with; so do we, over the three lists together."""
    names = [name for name in ("entrypoint", "command", "args") if values.get(name)]
    items = [item for name in names for item in values[name]]
    if faults or not items:
        return
    if len(items) > MAX_ARGUMENTS or sum(len(item.encode()) + 1 for item in items) > MAX_ARGUMENT_BYTES:
        limits = f"{MAX_ARGUMENTS} items and {MAX_ARGUMENT_BYTES} bytes"
        faults.add(names[-1], f"entrypoint, command and args take more than {limits} together.")


def variables(value: object, path: str, faults: Faults) -> Any:
    size = 0
    for name, item, at in _items(value, path, MAX_VARIABLES, faults):
        if not VARIABLE.match(name):
            faults.add(at, "Not a valid name of a variable.")
        elif name.startswith(VARIABLES_REFUSED) or name in VARIABLES_RESERVED:
            faults.add(at, "This variable may not be set.", code="refused")
        elif fault := text_fault(item, MAX_VARIABLE_BYTES):
            faults.add(at, fault)
        else:
            size += len(name) + len(item.encode()) + 2
    if size > MAX_VARIABLES_BYTES:
        faults.add(path, f"More than {MAX_VARIABLES_BYTES} bytes together.")
    return value


def labels(value: object, path: str, faults: Faults) -> Any:
    for name, item, at in _items(value, path, MAX_LABELS, faults):
        if not LABEL.match(name):
            faults.add(at, "Not a valid name of a label: letters, digits and ._/- between them, at most 63.")
        elif fault := text_fault(item, MAX_LABEL_BYTES):
            faults.add(at, fault)
    return value


def resources(value: object, path: str, faults: Faults) -> Any:
    amounts: dict[str, int] = {}
    for name, item, at in _items(value, path, MAX_RESOURCES, faults):
        if not RESOURCE.match(name):
            faults.add(at, "Not the name of a resource.")
            continue
        amount: Any = _mib(item) if name in ("ram", "disk") and isinstance(item, str) else item
        if not is_whole(amount):
            faults.add(at, "Not a whole number (ram and disk: MiB, or text like “4GiB”).")
        elif not 0 <= amount <= MAX_AMOUNT:
            faults.add(at, "Must be 0 or more, and fit into 63 bits.")
        else:
            amounts[name] = amount
    return amounts


def inputs(value: object, path: str, faults: Faults) -> Any:
    texts: dict[str, str] = {}
    if not isinstance(value, list) or len(value) > MAX_INPUTS:
        faults.add(path, f"Not a list of at most {MAX_INPUTS} inputs.")
        return texts
    for position, item in enumerate(value):
        at = f"{path}/{position}"
        if not isinstance(item, Mapping) or set(item) != {"name", "text"}:
            faults.add(at, "An input has a name and a text, and nothing else.")
        elif not _is_input_name(item["name"]):
            faults.add(
                f"{at}/name", "Not a plain file name of letters, digits and ._- of at most 128 characters."
            )
        elif item["name"] in texts:
            faults.add(f"{at}/name", "An input of this name was given before.", code="duplicate")
        elif fault := text_fault(item["text"], MAX_INPUT_BYTES):
            faults.add(f"{at}/text", fault)
        else:
            texts[item["name"]] = item["text"]
    if sum(len(text.encode()) for text in texts.values()) > MAX_INPUT_BYTES:
        faults.add(path, f"More than {MAX_INPUT_BYTES} bytes together.")
    return texts


def outputs(value: object, path: str, faults: Faults) -> Any:
    if not isinstance(value, list) or len(value) > MAX_OUTPUTS:
        faults.add(path, f"Not a list of at most {MAX_OUTPUTS} paths.")
        return ()
    seen = set()
    for position, item in enumerate(value):
        at = f"{path}/{position}"
        if fault := text_fault(item, MAX_PATH_BYTES):
            faults.add(at, fault)
        elif any(part in ("", ".", "..") for part in item.split("/")) or not item.isprintable():
            faults.add(at, "Not a plain path below the outputs folder.")
        elif item in seen:
            faults.add(at, "This path was declared before.", code="duplicate")
        else:
            seen.add(item)
    return tuple(value)


def duration(value: Any, path: str, faults: Faults) -> Any:
    if not is_whole(value):
        faults.add(path, "Not a whole number of seconds.")
    elif not 1 <= value <= MAX_SECONDS:
        faults.add(path, f"Must be from 1 to {MAX_SECONDS} seconds.")
    return value


def tier(value: object, path: str, faults: Faults) -> Any:
    if not isinstance(value, str) or value not in Tier.values:
        faults.add(path, "Must be “paid” or “free”.")
    return value


def account(value: object, path: str, faults: Faults) -> Any:
    if not _is_uuid(value):
        faults.add(path, "Not the id of an account.")
        return None
    return UUID(str(value))


def _items(value: object, path: str, limit: int, faults: Faults) -> Iterator[tuple[str, Any, str]]:
    """The entries of a mapping with their paths; a fault and nothing when it is none, or too large."""
    if not isinstance(value, Mapping):
        faults.add(path, "Not an object.")
    elif len(value) > limit:
        faults.add(path, f"More than {limit} entries.")
    else:
        for name, item in value.items():
            yield name, item, f"{path}/{step(str(name))}"


def _is_uuid(value: object) -> bool:
    """The canonical text of a UUID, with hyphens; other spellings that Python would take are not ids."""
    if not isinstance(value, str) or len(value) != 36:
        return False
    try:
        return str(UUID(value)) == value.lower()
    except ValueError:
        return False


def _is_input_name(value: object) -> bool:
    return isinstance(value, str) and bool(INPUT_NAME.match(value)) and value not in (".", "..")


def _mib(value: str) -> int | None:
    found = SIZE.match(value)
    return int(found[1]) * MIB[found[2]] if found else None
