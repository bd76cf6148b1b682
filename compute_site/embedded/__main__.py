"""`python -m compute_site.embedded COMMAND`: what ./run calls once the virtual environment is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .checks import check
from .paths import REPOSITORY
from .progress import Failed, warn
from .testing import bench, chaos, test
from .up import demo, down, services, up

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "up": up,
    "down": down,
    "test": test,
    "check": check,
    "bench": bench,
    "chaos": chaos,
    "services": services,
}


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit code. What the person can repair is told in one line."""
    name, *rest = arguments or [""]
    if name not in COMMANDS:
        warn(f"unknown command {name!r}: ./run help lists them")
        return 2
    read_settings_file()
    try:
        return COMMANDS[name](rest)
    except Failed as problem:
        warn(str(problem))
        return 1


def read_settings_file() -> None:
    """Take DATABASE_URL and the like from `.env`, as the site does; what is set already wins."""
    file = REPOSITORY / ".env"
    for line in file.read_text().splitlines() if file.exists() else []:
        key, equals, value = line.removeprefix("export ").partition("=")
        if equals and not key.lstrip().startswith("#"):
            os.environ.setdefault(key.strip(), value.strip().strip("'\""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
