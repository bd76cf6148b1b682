"""What an agent is told: a YAML file, and variables AGENT_<NAME> that win over it."""

import base64
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX = "AGENT_"


class BadConfig(Exception):
    """The agent cannot start like this; the message names the setting."""


@dataclass(frozen=True)
class Config:
    """Paths are absolute or below the agent's working folder. Times are in seconds."""

    site_url: str
    site_id: str
    key_file: Path  # 32 bytes in base64, readable by nobody else
    binding_file: Path  # as the owner signed it: {"binding": ..., "signature": ...}
    state_dir: Path  # finished results until the site has them
    name: str = "agent"  # labels this agent's containers on its engine: one agent for each name
    engine: str = "unix:///var/run/docker.sock"
    launcher: str = "launcher"
    image: str = "compute-site/base:latest"  # runs units that name no image
    cores: tuple[int, ...] = (0,)
    slots: int = 1
    first_uid: int = 2_100_000_000
    poll: float = 5.0
    log_cap: int = 1_048_576  # bytes for each stream
    alter_outputs: bool = False  # a worker that lies, to try out disputes; never set otherwise

    def key(self) -> Ed25519PrivateKey:
        """The worker's own key. Raises BadConfig when others may read its file."""
        if stat.S_IMODE(self.key_file.stat().st_mode) & 0o077:
            raise BadConfig(f"key_file: {self.key_file} may be read by others; chmod 600 it")
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(self.key_file.read_text()))

    def binding(self) -> dict[str, Any]:
        """The owner's signed statement that this key is theirs."""
        found: dict[str, Any] = json.loads(self.binding_file.read_text())
        return found


def read_config(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """The settings of a file and of the environment. Raises BadConfig with the name of the wrong one."""
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BadConfig(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadConfig(f"{path}: not a list of settings")
    names = {field.name for field in fields(Config)}
    if unknown := set(found) - names:
        raise BadConfig(f"{path}: there is no setting {', '.join(sorted(map(str, unknown)))}")
    for name in names:
        if PREFIX + name.upper() in environment:
            found[name] = yaml.safe_load(environment[PREFIX + name.upper()])
    try:
        return Config(**{name: _converted(name, value) for name, value in found.items()})
    except TypeError as error:
        raise BadConfig(f"{path}: {error}") from error


def _converted(name: str, value: Any) -> Any:
    """Each value in its type; nothing is guessed."""
    kind = Config.__annotations__[name]
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind == tuple[int, ...] and isinstance(value, list) and all(type(one) is int for one in value):
        return tuple(value)
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind in (str, int, bool) and type(value) is kind:
        return value
    raise BadConfig(f"{name}: {value!r} is not as it must be")
