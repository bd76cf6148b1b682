"""What came of an attempt, as its runner found it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One output whose content is stored. `size` in bytes, `sha256` in hex, `path` below the outputs folder."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one attempt: `reason` is a name of the end-reason table, everything else what is known beside it.

    `run_seconds`: from the container's start to its end. `usage`: cpu_seconds, peak_memory_bytes, memory_kills,
    stdout_cut, stderr_cut and the like. `manifest` with its hash as `jobs.results.build_manifest` makes them.
    """

    reason: str
    detail: str = ""
    exit_code: int | None = None
    run_seconds: float | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    manifest: Mapping[str, Any] | None = None
    manifest_sha256: str = ""
    refused: Sequence[Mapping[str, str]] = ()
    artifacts: Sequence[StoredFile] = ()
