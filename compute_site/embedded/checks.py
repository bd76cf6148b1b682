"""`./run check`: every check with its own line and time; all run, then the exit code tells."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .paths import REPOSITORY
from .progress import step, warn

_PROGRAMS = Path(sys.executable).parent
_SCHEMA = REPOSITORY / "docs/openapi.yaml"
_SILENT_WARNING = "ignore:Got an error checking a consistent migration history"


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; `run` returns an empty text when it passes, else what is wrong."""

    name: str
    run: Callable[[], str]


def program(*argv: str) -> Callable[[], str]:
    """A check that passes when the program ends with 0."""

    def run() -> str:
        done = subprocess.run(
            argv, cwd=REPOSITORY, env=_environment(), capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else done.stdout + done.stderr or f"code {done.returncode}"

    return run


def manage(*arguments: str) -> Callable[[], str]:
    """A check that is one of Django's commands."""
    return program(sys.executable, "-W", _SILENT_WARNING, "manage.py", *arguments)


def schema_is_current() -> str:
    """The OpenAPI description is valid and is what docs/openapi.yaml says."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "openapi.yaml"
        problem = manage("spectacular", "--validate", "--fail-on-warn", "--file", str(fresh))()
        if problem:
            return problem
        new = fresh.read_text().splitlines()
    old = _SCHEMA.read_text().splitlines() if _SCHEMA.exists() else []
    change = list(difflib.unified_diff(old, new, "docs/openapi.yaml", "the code", lineterm="", n=1))
    if not change:
        return ""
    hint = "Update it: .run/venv/bin/python manage.py spectacular --file docs/openapi.yaml"
    return "\n".join([*change[:40], hint])


CHECKS = [
    Check("ruff check", program(str(_PROGRAMS / "ruff"), "check", ".")),
    Check("ruff format", program(str(_PROGRAMS / "ruff"), "format", "--check", ".")),
    Check("layers", program(str(_PROGRAMS / "lint-imports"))),
    Check("migrations", manage("makemigrations", "--check", "--dry-run")),
    Check("deploy checks", manage("check", "--deploy", "--fail-level", "WARNING")),
    Check("openapi", schema_is_current),
    Check("mypy", program(str(_PROGRAMS / "mypy"), ".")),
]


def check(_: list[str]) -> int:
    """Run all of them; 0 when all pass."""
    failed = []
    for item in CHECKS:
        started = time.monotonic()
        problem = item.run()
        seconds = time.monotonic() - started
        if problem:
            failed.append(item.name)
            print(problem.rstrip(), flush=True)
            warn(f"{item.name}: failed ({seconds:.1f} s)")
        else:
            step(f"{item.name}: ok ({seconds:.1f} s)")
    step(
        f"{len(CHECKS) - len(failed)} of {len(CHECKS)} checks passed"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


def _environment() -> dict[str, str]:
    """A production-like environment without any service: no check needs one."""
    values = {
        "SECRET_KEY": "only-for-the-checks-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGH",
        "SECURE": "true",
        "DEBUG": "false",
        "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
        "PATH": f"{_PROGRAMS}:{os.environ.get('PATH', '')}",
    }
    return {**os.environ, **values}
