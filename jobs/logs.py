"""A job's output streams, byte for byte, in chunks that the watcher ships while the job runs."""

from django.db import IntegrityError, transaction
from django.db.models import F, Func, IntegerField, Max

from compute_site.core.db import constraint_name
from jobs.models import Attempt, LogChunk

CHUNK_BYTES = 256 * 1024


class _Length(Func):
    """Bytes of a bytea column, read from its header."""

    function = "octet_length"
    output_field = IntegerField()


class LogGap(Exception):
    """Bytes were shipped from beyond what is stored: the caller must go back to `shipped_offset`."""


def shipped_offset(attempt: Attempt, stream: str) -> int:
    """How many bytes of the stream are stored: the offset to ship from next."""
    last = (
        LogChunk.objects.filter(attempt=attempt, stream=stream)
        .order_by("-offset")
        .values_list(F("offset") + _Length("data"), flat=True)
        .first()
    )
    return last or 0


def append_log(attempt: Attempt, stream: str, offset: int, data: bytes) -> int:
    """Store `data`, which begins at `offset` of the stream; returns the offset to ship from next.

    Bytes that are stored already are skipped, so repeated, overlapping and parallel ships change nothing: a chunk
    always begins where the stored bytes end, and only one can begin there. Raises LogGap.
    """
    end = shipped_offset(attempt, stream)
    if offset > end:
        raise LogGap(f"{stream} is stored up to {end}, but bytes from {offset} on were shipped")
    for start in range(end, offset + len(data), CHUNK_BYTES):
        piece = data[start - offset : start - offset + CHUNK_BYTES]
        if not _insert(attempt, stream, start, piece):
            return shipped_offset(attempt, stream)
        end = start + len(piece)
    return end


def read_log(attempt: Attempt, stream: str, after: int = 0, limit: int = 1 << 20) -> tuple[bytes, int]:
    """At most `limit` bytes of the stream from offset `after` on, exactly as written, and the offset after them."""
    chunks = LogChunk.objects.filter(attempt=attempt, stream=stream)
    first = chunks.filter(offset__lte=after).aggregate(at=Max("offset"))["at"]
    if first is None:
        return b"", after
    pieces: list[bytes] = []
    end = after
    for start, data in (
        chunks.filter(offset__gte=first, offset__lt=after + limit)
        .order_by("offset")
        .values_list("offset", "data")
    ):
        piece = bytes(data)[end - start : after + limit - start]
        pieces.append(piece)
        end += len(piece)
    return b"".join(pieces), end


def bytes_cut(attempt: Attempt, stream: str) -> int:
    """How many bytes of the stream were cut at the cap, by the launcher's count; 0 while it is not known."""
    marker = attempt.exit_facts.get("marker") or {}
    return int(marker.get(f"{stream}_cut", 0))


def _insert(attempt: Attempt, stream: str, offset: int, data: bytes) -> bool:
    try:
        with transaction.atomic():
            LogChunk.objects.create(attempt=attempt, stream=stream, offset=offset, data=data)
    except IntegrityError as error:
        if constraint_name(error) != "log_chunk_once":
            raise
        return False
    return True
