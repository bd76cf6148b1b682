"""Reads a hostile folder by directory descriptor. Nothing here follows a link or recurses.

A path is never handed to the kernel as a whole: each name is opened below the descriptor of the folder before it
(O_NOFOLLOW), so a symlink anywhere, whenever it is made, cannot lead out of the tree.
"""

import os
import stat

from workers.sandbox.outputs import Collection, OutputFile, OutputLimits, Outputs, Sink, Stop, path_fault

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: should a FIFO take the file's place between stat and open, the open returns instead of hanging.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

Parts = tuple[bytes, ...]
Inode = tuple[int, int]


class TreeReader:
    """One walk over one tree. Descriptors held: one per level, bounded by the depth cap."""

    def __init__(self, root: int, collection: Collection) -> None:
        self._root = root
        self._device = os.fstat(root).st_dev
        self._collection = collection
        self._linked: dict[Inode, list[Parts]] = {}

    def read(self) -> None:
        """Walks the tree, then the files with several names (judged last: all their names must lie inside)."""
        frames: list[tuple[int, list[Parts]]] = []  # an open folder and the folders in it still to be read
        try:
            root = os.dup(self._root)
            frames.append((root, []))
            frames[-1][1].extend(self._folder((), root))
            while frames:
                folder, waiting = frames[-1]
                if not waiting:
                    os.close(frames.pop()[0])
                elif (below := self._open_folder(waiting[-1], folder)) >= 0:
                    frames.append((below, []))
                    frames[-1][1].extend(self._folder(waiting.pop(), below))
                else:
                    waiting.pop()
            self._linked_files()
        except Stop:
            pass
        finally:
            for folder, _ in frames:
                os.close(folder)

    def _folder(self, parts: Parts, folder: int) -> list[Parts]:
        """Takes the files of one open folder; returns the paths of the folders in it."""
        below: list[Parts] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._collection.count()
                path = (*parts, os.fsencode(entry.name))
                if self._entry(path, folder):
                    below.append(path)
        return below

    def _entry(self, parts: Parts, folder: int) -> bool:
        """Judges one entry; True when it is a folder to go into."""
        path = b"/".join(parts)
        fault = path_fault(parts, self._collection.limits)
        if fault:
            self._collection.refuse(path, fault)
            return False
        try:
            found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except OSError:
            self._collection.refuse(path, "unreadable")
            return False
        kind = stat.S_IFMT(found.st_mode)
        if kind in KINDS:
            self._collection.refuse(path, KINDS[kind])
        elif found.st_dev != self._device:
            self._collection.refuse(path, "other_filesystem")
        elif kind == stat.S_IFDIR:
            return True
        elif found.st_nlink > 1:
            self._linked.setdefault((found.st_dev, found.st_ino), []).append(parts)
        else:
            self._file(parts, folder, found)
        return False

    def _open_folder(self, parts: Parts, folder: int) -> int:
        try:
            return os.open(parts[-1], FOLDER, dir_fd=folder)
        except OSError:
            self._collection.refuse(b"/".join(parts), "unreadable")
            return -1

    def _file(self, parts: Parts, folder: int, found: os.stat_result) -> OutputFile | None:
        """Reads one regular file through its descriptor only; it must still be the one that was judged."""
        path = b"/".join(parts)
        fault = self._collection.size_fault(found.st_size)
        if fault:
            self._collection.refuse(path, fault)
            return None
        try:
            fd = os.open(parts[-1], FILE, dir_fd=folder)
        except OSError:
            self._collection.refuse(path, "unreadable")
            return None
        with os.fdopen(fd, "rb", buffering=0) as content:
            if _identity(os.fstat(fd)) != _identity(found):
                self._collection.refuse(path, "changed_while_read")
                return None
            return self._collection.take(path, found.st_size, content, seekable=True)

    def _linked_files(self) -> None:
        for paths in self._linked.values():
            first: OutputFile | None = None
            for parts in paths:
                path = b"/".join(parts)
                if first is not None:
                    fault = self._collection.size_fault(first.size)
                    self._collection.refuse(path, fault) if fault else self._collection.repeat(path, first)
                else:
                    first = self._linked_file(parts, len(paths))

    def _linked_file(self, parts: Parts, seen: int) -> OutputFile | None:
        folder = os.dup(self._root)
        try:
            for name in parts[:-1]:
                deeper = os.open(name, FOLDER, dir_fd=folder)
                os.close(folder)
                folder = deeper
            found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            if found.st_nlink != seen:
                self._collection.refuse(b"/".join(parts), "hard_link_outside")
                return None
            return self._file(parts, folder, found)
        finally:
            os.close(folder)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns)


def read_tree(root: int, limits: OutputLimits, sink: Sink) -> Outputs:
    """Reads the folder open at descriptor `root` (it stays open). Only after everything that could write is dead."""
    collection = Collection(limits, sink)
    TreeReader(root, collection).read()
    return collection.outputs
