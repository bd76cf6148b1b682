"""Finished results on disk, until the site has acknowledged them: a lost answer never runs a job again."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Spool:
    """One file for each assignment that has ended; whole or absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, assignment: Mapping[str, Any], finished: Mapping[str, Any]) -> None:
        """Keep a result; it survives the end of this process."""
        path = self._path(assignment["id"])
        temporary = path.with_suffix(".part")
        with temporary.open("w") as target:
            short = {name: assignment[name] for name in ("id", "token", "unit")}
            json.dump({"assignment": short, "finished": dict(finished)}, target)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)

    def waiting(self) -> Iterator[dict[str, Any]]:
        """Every result that the site has not acknowledged."""
        for path in sorted(self._folder.glob("*.json")):
            yield json.loads(path.read_text())

    def drop(self, assignment_id: str) -> None:
        """The site has it, or does not want it."""
        self._path(assignment_id).unlink(missing_ok=True)

    def _path(self, assignment_id: str) -> Path:
        return self._folder / f"{assignment_id}.json"
