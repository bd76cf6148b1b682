"""What a job left behind, judged entry by entry: the caps, the reasons for a refusal, and the record of both.

Whatever way the entries come (a directory descriptor, a tar stream), they pass through one `Collection`, so that
both ways refuse the same things for the same reasons.
"""

import hashlib
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, BinaryIO

SMALL = 1 << 20  # bytes: content up to here is held in memory, beyond it is read twice or spooled
BLOCK = 1 << 18
LISTED = 100  # refusals listed one by one; the rest is only counted
# Characters that reorder the text around them: a name holding one does not read as what it is.
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
BROKEN = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line and paragraph breaks


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Caps of one reading. Sizes in bytes; depth counts the names of a path; `entries` counts refused ones too."""

    max_bytes: int = 10 << 30
    max_file_bytes: int = 10 << 30
    max_files: int = 10_000
    max_entries: int = 20_000
    max_depth: int = 32
    max_name: int = 255
    max_path: int = 1024


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A good one: `path` is relative to the outputs folder, `sha256` is in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Refused:
    """One that was not taken. `path` is escaped to printable ASCII and bounded."""

    path: str
    reason: str


@dataclass(slots=True)
class Outputs:
    """The result of a reading. `stopped` names the cap that ended the walk early, or is empty."""

    files: list[OutputFile] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    refused_counts: Counter[str] = field(default_factory=Counter)
    total_bytes: int = 0
    stopped: str = ""


Sink = Callable[[OutputFile, BinaryIO], None]


class Stop(Exception):
    """A cap was reached that ends the walk; what was accepted so far stands."""


def escaped(path: bytes) -> str:
    """A path of any bytes as printable ASCII of at most 300 characters."""
    text = path[:300].decode("utf-8", "backslashreplace").encode("ascii", "backslashreplace").decode()
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)[:300]


def name_fault(name: bytes, limits: OutputLimits) -> str:
    """Why this one name of a path is refused, or an empty text."""
    if len(name) > limits.max_name:
        return "name_too_long"
    if name in (b"", b".", b"..") or b"/" in name:
        return "name_not_plain"
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return "name_not_utf8"
    if any(c in BIDI or unicodedata.category(c) in BROKEN for c in text):
        return "name_control_character"
    return ""


def path_fault(parts: tuple[bytes, ...], limits: OutputLimits) -> str:
    """Why this path (its names, in order) is refused, or an empty text."""
    if len(parts) > limits.max_depth:
        return "too_deep"
    if sum(map(len, parts)) + len(parts) - 1 > limits.max_path:
        return "path_too_long"
    return next(filter(None, (name_fault(name, limits) for name in parts)), "")


class Collection:
    """Takes entries one by one, keeps the caps, hashes content and hands each distinct content to the sink once."""

    def __init__(self, limits: OutputLimits, sink: Sink) -> None:
        self.limits = limits
        self.outputs = Outputs()
        self._sink = sink
        self._entries = 0
        self._given: set[str] = set()

    def count(self) -> None:
        """Call once for each entry of any kind. Raises Stop beyond the cap."""
        self._entries += 1
        if self._entries > self.limits.max_entries:
            self.stop("too_many_entries")

    def stop(self, reason: str) -> None:
        """Ends the walk."""
        self.outputs.stopped = reason
        raise Stop(reason)

    def refuse(self, path: bytes, reason: str) -> None:
        """Records a refusal: counted always, listed while the list is short."""
        self.outputs.refused_counts[reason] += 1
        if len(self.outputs.refused) < LISTED:
            self.outputs.refused.append(Refused(escaped(path), reason))

    def size_fault(self, size: int) -> str:
        """Why content of this size (bytes) is not taken, told before a byte of it is read. Raises Stop."""
        if len(self.outputs.files) >= self.limits.max_files:
            self.stop("too_many_files")
        if size > self.limits.max_file_bytes:
            return "file_too_large"
        if self.outputs.total_bytes + size > self.limits.max_bytes:
            return "total_too_large"
        return ""

    def take(self, path: bytes, size: int, content: IO[bytes], *, seekable: bool) -> OutputFile | None:
        """Reads exactly `size` bytes and records the file; one that is shorter or longer by now is refused.

        The sink is called with a stream at its start, only when no earlier file had the same content.
        """
        if size <= SMALL:
            data = content.read(size)
            digest = hashlib.sha256(data).hexdigest()
            return self._record(path, size, len(data), digest, BytesIO(data))
        if seekable:
            read, digest = _hash(content, size, None)
            content.seek(0)
            return self._record(path, size, read, digest, content)
        with tempfile.TemporaryFile() as spool:
            read, digest = _hash(content, size, spool)
            spool.seek(0)
            return self._record(path, size, read, digest, spool)

    def repeat(self, path: bytes, earlier: OutputFile) -> None:
        """Records another name of content that was taken before."""
        self._add(OutputFile(path.decode(), earlier.size, earlier.sha256))

    def _record(
        self, path: bytes, size: int, read: int, digest: str, content: IO[bytes]
    ) -> OutputFile | None:
        if read != size:
            self.refuse(path, "changed_while_read")
            return None
        file = OutputFile(path.decode(), size, digest)
        if digest not in self._given:
            self._sink(file, content)  # type: ignore[arg-type]
            self._given.add(digest)
        self._add(file)
        return file

    def _add(self, file: OutputFile) -> None:
        self.outputs.files.append(file)
        self.outputs.total_bytes += file.size


def _hash(content: IO[bytes], size: int, copy: IO[bytes] | None) -> tuple[int, str]:
    digest, left = hashlib.sha256(), size
    while left and (block := content.read(min(BLOCK, left))):
        digest.update(block)
        left -= len(block)
        if copy is not None:
            copy.write(block)
    return size - left, digest.hexdigest()
