"""Reads outputs from an engine's tar stream, with the same verdicts as from a folder."""

from typing import IO, cast

from workers.sandbox.outputs import Collection, OutputFile, OutputLimits, Outputs, Sink, Stop, path_fault
from workers.sandbox.tar import Member, SkipTooLarge, TarReader

SKIPPED = 1 << 30  # bytes of refused content that are passed over before the reading is given up


class TarOutputs:
    """One pass over one stream whose members all lie below the folder named `top`."""

    def __init__(self, top: bytes, reader: TarReader, collection: Collection) -> None:
        self._top = top
        self._reader = reader
        self._collection = collection
        self._taken: dict[bytes, OutputFile] = {}
        self._closed: bytes | None = (
            None  # the folder refused last: what lies in it follows, and is not refused once more
        )

    def read(self) -> None:
        """Until the end of the stream, or a cap, or content too large to pass over."""
        try:
            for member in self._reader:
                if member.name.rstrip(b"/") == self._top and member.kind == "folder":
                    continue
                self._collection.count()
                self._member(member)
        except SkipTooLarge:
            self._collection.outputs.stopped = "refused_content_too_large"
        except Stop:
            pass

    def _member(self, member: Member) -> None:
        parts = tuple(member.name.removesuffix(b"/").split(b"/"))
        path = b"/".join(parts[1:])
        if self._closed is not None and path.startswith(self._closed):
            return
        inside = parts[0] == self._top and len(parts) > 1
        fault = path_fault(parts[1:], self._collection.limits) if inside else "outside"
        if fault:
            self._collection.refuse(path or member.name, fault)
            self._closed = path + b"/" if inside and member.kind == "folder" else None
        elif member.kind == "file":
            self._file(path, member.size)
        elif member.kind == "hard_link":
            self._hard_link(path, member.link)
        elif member.kind != "folder":
            self._collection.refuse(path, member.kind)

    def _file(self, path: bytes, size: int) -> None:
        fault = self._collection.size_fault(size)
        if fault:
            self._collection.refuse(path, fault)
            return
        taken = self._collection.take(path, size, cast(IO[bytes], self._reader), seekable=False)
        if taken:
            self._taken[path] = taken

    def _hard_link(self, path: bytes, link: bytes) -> None:
        """A second name of a file that came earlier in the same stream; any other target is outside."""
        earlier = self._taken.get(link.removeprefix(self._top + b"/"))
        if earlier is None:
            self._collection.refuse(path, "hard_link_outside")
        elif fault := self._collection.size_fault(earlier.size):
            self._collection.refuse(path, fault)
        else:
            self._collection.repeat(path, earlier)


def read_tar(top: str, source: IO[bytes], limits: OutputLimits, sink: Sink) -> Outputs:
    """Reads a stream of the folder `top`. Raises Malformed; the caller closes the stream."""
    collection = Collection(limits, sink)
    TarOutputs(top.encode(), TarReader(source, SKIPPED), collection).read()
    return collection.outputs
