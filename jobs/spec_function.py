"""The function of a function job: how it is read, and what its role fixes. What the archive holds is seen only inside."""

import base64
import binascii
import json
import keyword
import re
from collections.abc import Mapping
from typing import Any

from jobs.result_json import InvalidResult, parse_result
from jobs.spec_fields import Faults, text_fault

RESULT = "result.json"
MODEL = "model"
MAX_BUNDLE_BYTES = 1024 * 1024
MAX_ARGS_BYTES = 64 * 1024
MAX_ENTRY_BYTES = 255
ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")  # gzip (of a tar), zip
ENTRY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)
# Role → the outputs that it declares; None: whatever the job declares.
ROLES: dict[str, tuple[str, ...] | None] = {
    "plain": None,
    "train": (MODEL, RESULT),
    "evaluate": (RESULT,),
    "aggregate": (MODEL, RESULT),
}
KEYS = frozenset({"bundle", "entry", "role", "args"})


def read_function(value: object, path: str, faults: Faults) -> Any:
    """`bundle` (base64 of a tar.gz or zip, at most 1 MiB), `entry` (module:function), `role` (plain), `args` (an object)."""
    if not isinstance(value, Mapping):
        faults.add(path, "Not an object.")
        return None
    faults.unknown(value, KEYS, path)
    for name in ("bundle", "entry"):
        if name not in value:
            faults.add(f"{path}/{name}", "This field is required.", code="required")
    role, args = value.get("role", "plain"), value.get("args", {})
    if not isinstance(role, str) or role not in ROLES:
        faults.add(f"{path}/role", f"Must be one of {', '.join(ROLES)}.")
    if "bundle" in value:
        _check_bundle(value["bundle"], f"{path}/bundle", faults)
    if "entry" in value:
        _check_entry(value["entry"], f"{path}/entry", faults)
    _check_args(args, f"{path}/args", faults)
    return {"bundle": value.get("bundle"), "entry": value.get("entry"), "role": role, "args": args}


def check_against(values: Mapping[str, Any], faults: Faults) -> None:
    """What goes with a function: no command, no image, the outputs of its role, candidates that are inputs."""
    function = values.get("function")
    if faults or function is None:
        return
    for name in ("entrypoint", "command", "args", "image"):
        if values.get(name):
            text = "A job has a function or a command, not both; a function runs in the site's own image."
            faults.add(name, text, code="function_or_command")
    if ROLES[function["role"]] is not None and values.get("outputs") is not None:
        faults.add("outputs", f"The outputs of the role {function['role']} are fixed.", code="fixed_by_role")
    if function["role"] == "evaluate":
        _check_candidates(function["args"].get("candidates"), values.get("inputs", {}), faults)


def outputs_of(function: Mapping[str, Any], asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The declared outputs of a function job; None: everything is taken. The result always is."""
    fixed = ROLES[function["role"]]
    if fixed is not None or asked is None:
        return fixed
    return asked if RESULT in asked else (*asked, RESULT)


def bundle_of(function: Mapping[str, Any]) -> bytes:
    """The archive of a function that was read before."""
    return base64.b64decode(function["bundle"])


def _check_bundle(value: object, path: str, faults: Faults) -> None:
    if fault := text_fault(value, MAX_BUNDLE_BYTES * 4 // 3 + 4):
        faults.add(path, f"{fault} A bundle is the base64 of at most {MAX_BUNDLE_BYTES} bytes.")
        return
    try:
        content = base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        faults.add(path, "Not base64.")
        return
    if len(content) > MAX_BUNDLE_BYTES:
        faults.add(path, f"More than {MAX_BUNDLE_BYTES} bytes.")
    elif not content.startswith(ARCHIVES):
        faults.add(path, "Neither a tar.gz nor a zip archive.")


def _check_entry(value: object, path: str, faults: Faults) -> None:
    if fault := text_fault(value, MAX_ENTRY_BYTES):
        faults.add(path, fault)
    elif not ENTRY.match(str(value)) or any(keyword.iskeyword(word) for word in re.split("[.:]", str(value))):
        faults.add(path, "Not module:function, both made of Python names.")


def _check_args(value: object, path: str, faults: Faults) -> None:
    if not isinstance(value, Mapping):
        faults.add(path, "Not an object.")
        return
    try:
        text = json.dumps(value).encode()
        if len(text) > MAX_ARGS_BYTES:
            faults.add(path, f"More than {MAX_ARGS_BYTES} bytes of JSON.")
            return
        parse_result(text)
    except (InvalidResult, TypeError, ValueError, RecursionError) as error:
        faults.add(path, f"Not acceptable: {error}.")


def _check_candidates(value: object, inputs: Mapping[str, str], faults: Faults) -> None:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        faults.add("function/args/candidates", "The role evaluate needs a list of the inputs to be scored.")
        return
    for position, name in enumerate(value):
        if name not in inputs or name in value[:position]:
            faults.add(f"function/args/candidates/{position}", "Not the name of an input, or there before.")
