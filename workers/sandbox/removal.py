"""Measures and deletes hostile folders of any depth and width, with a few descriptors and no recursion."""

import os
import secrets
import stat

from workers.sandbox.tree import FOLDER

MEASURED = 200_000  # entries: about half a second of one core
HELD = 64  # descriptors of folders above the current one that stay open
UNMEASURABLE = 1 << 62


class Moved(Exception):
    """A folder changed its place while it was measured."""


def delete_tree(path: str) -> None:
    """Deletes the folder at `path` and all below it; a missing one is fine. Another filesystem is never entered.

    A folder below is first renamed to the top, so that two descriptors suffice at any depth and every folder is
    moved at most once. Raises OSError when something cannot be deleted (a mount, an immutable file).
    """
    try:
        top = os.open(path, FOLDER)
    except FileNotFoundError:
        return
    try:
        prefix = f".{secrets.token_hex(8)}-"  # nobody below can have guessed it
        device, moved = os.fstat(top).st_dev, 0
        waiting = _empty(top, top, device, "", 0)[0]
        while waiting:
            name = waiting.pop()
            folder = os.open(name, FOLDER, dir_fd=top)
            try:
                if os.fstat(folder).st_dev != device:
                    raise OSError(f"{path}/{escaped_name(name)} is another filesystem")
                found, moved = _empty(folder, top, device, prefix, moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
            waiting.extend(found)
    finally:
        os.close(top)
    os.rmdir(path)


def escaped_name(name: str) -> str:
    """A name as printable ASCII, for messages."""
    return os.fsencode(name).decode("ascii", "backslashreplace")


def _empty(folder: int, top: int, device: int, prefix: str, moved: int) -> tuple[list[str], int]:
    """Unlinks the files of a folder; its folders move to the top (or stay, when it is the top). Names, counter."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
        elif folder == top:
            found.append(name)
        else:
            moved += 1
            os.rename(name, f"{prefix}{moved}", src_dir_fd=folder, dst_dir_fd=top)
            found.append(f"{prefix}{moved}")
    return found, moved


def measure_tree(path: str) -> int:
    """Bytes of disk taken below `path` (blocks, hard links once), while it may be changing.

    UNMEASURABLE when it holds more than MEASURED entries, or keeps moving its deep folders: both would otherwise
    be ways past a watchdog.
    """
    for _ in range(3):
        try:
            return _measure(path)
        except Moved:
            continue
        except FileNotFoundError:
            return 0
    return UNMEASURABLE


def _measure(path: str) -> int:
    total, entries = 0, 0
    linked: set[int] = set()
    # One frame per level: descriptor (-1 when closed for now), inode, names of the folders still to enter.
    frames = [_Frame(os.open(path, FOLDER))]
    try:
        while frames:
            frame = frames[-1]
            if not frame.scanned:
                size, count = frame.scan(linked)
                total, entries = total + size, entries + count
                if entries > MEASURED:
                    return UNMEASURABLE
            if frame.waiting:
                _descend(frames)
            else:
                _ascend(frames)
        return total
    finally:
        for frame in frames:
            frame.close()


class _Frame:
    def __init__(self, folder: int) -> None:
        self.folder = folder
        self.inode = os.fstat(folder).st_ino
        self.scanned = False
        self.waiting: list[str] = []

    def scan(self, linked: set[int]) -> tuple[int, int]:
        """Adds up the folder's own entries: bytes, entries. Folders below wait."""
        self.scanned, total, count = True, 0, 0
        with os.scandir(self.folder) as entries:
            for entry in entries:
                count += 1
                if count > MEASURED:
                    break
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    self.waiting.append(entry.name)
                elif found.st_nlink > 1:
                    if found.st_ino in linked:
                        continue
                    linked.add(found.st_ino)
                total += found.st_blocks * 512
        return total, count

    def close(self) -> None:
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1


def _descend(frames: list[_Frame]) -> None:
    name = frames[-1].waiting.pop()
    try:
        frames.append(_Frame(os.open(name, FOLDER, dir_fd=frames[-1].folder)))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise Moved from error
    if len(frames) > HELD:
        frames[-HELD - 1].close()


def _ascend(frames: list[_Frame]) -> None:
    """Back to the folder above; one that was closed is reopened through `..` and must be the same."""
    done = frames.pop()
    if frames and frames[-1].folder < 0:
        above = os.open("..", FOLDER, dir_fd=done.folder)
        if os.fstat(above).st_ino != frames[-1].inode:
            os.close(above)
            done.close()
            raise Moved
        frames[-1].folder = above
    done.close()
