"""Log bytes from a workspace into rows, exactly and once: the web cannot read an engine's disk."""

from jobs.logs import append_log, shipped_offset
from jobs.models import Attempt
from workers.sandbox.workspace import Stream, Workspace

CHUNK = 256 * 1024  # bytes in one row
AT_ONCE = 8  # chunks of one stream in one turn of the watcher


def ship_log(
    attempt: Attempt,
    workspace: Workspace,
    stream: Stream,
    *,
    start: int | None = None,
    chunks: int | None = None,
) -> int:
    """Ship what the stream has beyond `start` (by default: beyond what is stored), at most `chunks` rows.

    Returns the offset to go on from. Repeatable: bytes that are stored already change nothing.
    """
    offset = start or 0
    data = workspace.read_log(stream, offset, CHUNK)
    if (
        data and start is None and (stored := shipped_offset(attempt, stream))
    ):  # most logs are empty: nothing to ask
        offset = stored
        data = workspace.read_log(stream, offset, CHUNK)
    while data and (chunks is None or chunks > 0):
        offset = append_log(attempt, stream, offset, data)
        chunks = None if chunks is None else chunks - 1
        data = workspace.read_log(stream, offset, CHUNK) if chunks != 0 else b""
    return offset
