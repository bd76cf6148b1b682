"""A strict reader of the tar streams that an engine sends: flat memory, no seeking, nothing is ever unpacked.

Python's `tarfile` trusts sizes and nests extended headers by recursion; this one bounds both. Only what Go's writer
produces is understood (ustar, PAX, GNU long names, base-256 sizes); anything else is a malformed stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

RECORD = 512
EXTENDED = 1 << 16  # bytes: cap of one extended header; a path has at most 4096
SKIP = 1 << 18
KINDS = {
    b"0": "file",
    b"\0": "file",
    b"1": "hard_link",
    b"2": "symlink",
    b"3": "device",
    b"4": "device",
    b"5": "folder",
    b"6": "fifo",
}


class Malformed(ValueError):
    """The stream is not a tar file of the kind we read, or ends early."""


class SkipTooLarge(Exception):
    """Passing over unwanted content would cost more than was allowed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One entry: raw name and link target, size of its content in bytes (0 unless a file)."""

    name: bytes
    kind: str
    size: int
    link: bytes = b""


class TarReader:
    """Iterates over the members; between two steps `read(n)` gives the content of the current one.

    `skip_budget`: bytes of unread content that may be passed over in all; beyond it SkipTooLarge is raised.
    """

    def __init__(self, source: IO[bytes], skip_budget: int) -> None:
        self._source = source
        self._budget = skip_budget
        self._left = 0  # content of the current member not read yet
        self._padding = 0

    def __iter__(self) -> Iterator[Member]:
        extended: dict[str, bytes] = {}
        while True:
            self._skip()
            header = self._exactly(RECORD)
            if header == bytes(RECORD):
                return
            kind, size = header[156:157], _number(header[124:136])
            if header[148:156] != b" " * 8 and _number(header[148:156]) != _checksum(header):
                raise Malformed("wrong checksum")
            if kind in b"xgLK" and kind:
                extended |= self._extension(kind, size)
                continue
            yield self._member(header, kind, size, extended)
            extended = {}

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes of the current member's content; empty at its end."""
        want = self._left if size < 0 else min(size, self._left)
        data = self._exactly(want)
        self._left -= want
        return data

    def _member(self, header: bytes, kind: bytes, size: int, extended: dict[str, bytes]) -> Member:
        if "size" in extended:
            size = _decimal(extended["size"])
        if any(key.startswith("GNU.sparse") for key in extended):
            raise Malformed("sparse member")
        name = extended.get("path") or _name(header)
        link = extended.get("linkpath") or header[157:257].rstrip(b"\0")
        what = KINDS.get(kind, "other")
        size = size if what in ("file", "other") else 0
        self._left, self._padding = size, -size % RECORD
        return Member(name, what, size, link)

    def _extension(self, kind: bytes, size: int) -> dict[str, bytes]:
        if size > EXTENDED:
            raise Malformed("extended header too large")
        self._left, self._padding = size, -size % RECORD
        data = self.read()
        if kind == b"g":
            return {}
        if kind == b"L":
            return {"path": data.rstrip(b"\0")}
        if kind == b"K":
            return {"linkpath": data.rstrip(b"\0")}
        return dict(_pax(data))

    def _skip(self) -> None:
        self._budget -= self._left
        if self._budget < 0:
            raise SkipTooLarge
        self._left += self._padding
        self._padding = 0
        while self._left:
            self.read(SKIP)

    def _exactly(self, size: int) -> bytes:
        data = self._source.read(size)
        while len(data) < size:
            more = self._source.read(size - len(data))
            if not more:
                raise Malformed("the stream ends early")
            data += more
        return data


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0]
    return prefix + b"/" + name if header[257:263] == b"ustar\0" and prefix else name


def _checksum(header: bytes) -> int:
    return sum(header[:148]) + 8 * 32 + sum(header[156:])


def _number(text: bytes) -> int:
    """Octal digits, or base-256 where the first bit is set. Negative values are malformed."""
    if text[0] & 0x80:
        if text[0] != 0x80:
            raise Malformed("number out of range")
        return int.from_bytes(text[1:], "big")
    digits = text.strip(b" \0")
    if not digits:
        return 0
    if any(c not in b"01234567" for c in digits):
        raise Malformed("not an octal number")
    return int(digits, 8)


def _decimal(text: bytes) -> int:
    if not 0 < len(text) < 20 or not text.isdigit():
        raise Malformed("not a decimal number")
    return int(text)


def _pax(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Records of the form `length key=value\\n`, where the length counts itself."""
    while data:
        digits, space, _ = data[:20].partition(b" ")
        length = _decimal(digits) if space else 0
        record = data[:length]
        if length <= len(digits) + 1 or len(record) != length or record[-1:] != b"\n":
            raise Malformed("broken extended header")
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals:
            raise Malformed("broken extended header")
        yield key.decode("utf-8", "replace"), value
        data = data[length:]
