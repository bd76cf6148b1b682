"""A tree with every kind of entry that a job may leave, and what each is to become."""

import hashlib
import os
import socket
import stat
from pathlib import Path

LONGEST = "n" * 255
SECRET = b"outside"
GIANT = 1 << 40
DEPTH = 3000

# Path and content of what must come through whatever lies beside it.
GOOD = {
    "a-good.txt": b"first",
    "empty": b"",
    "folder/inner.bin": bytes(range(256)) * 8192,  # 2 MiB: not held in memory
    "folder/\u00e9\U0001f600 name": b"same",
    LONGEST: b"same",
    "link-1": b"linked",
    "link-2": b"linked",
    "zz-good": b"last",
}
# Escaped path and reason. `~giant` sorts last: an engine's stream ends there.
REFUSED = {
    "symlink-file": "symlink",
    "symlink-folder": "symlink",
    "symlink-loop": "symlink",
    "fifo": "fifo",
    "device": "device",
    "bytes-\\xff\\xfe": "name_not_utf8",
    "line\\x0abreak": "name_control_character",
    "escape\\x1b[2J": "name_control_character",
    "bidi\\u202egnp.exe": "name_control_character",
    "/".join("d" * 33): "too_deep",
    "~giant": "file_too_large",
}
ONLY_IN_A_FOLDER = {"socket": "socket", "link-out": "hard_link_outside"}


def plant(outputs: Path, outside: Path) -> None:
    """Makes the tree in `outputs` (as root). `outside` is a file beside it on the same file system."""
    for name, content in GOOD.items():
        place = outputs / name
        place.parent.mkdir(exist_ok=True)
        if name != "link-2":
            place.write_bytes(content)
    os.link(outputs / "link-1", outputs / "link-2")
    os.link(outside, outputs / "link-out")
    os.symlink("/etc/passwd", outputs / "symlink-file")
    os.symlink("/etc", outputs / "symlink-folder")
    os.symlink("symlink-loop", outputs / "symlink-loop")
    os.mkfifo(outputs / "fifo")
    os.mknod(outputs / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: endless if ever read
    make_socket(outputs)
    for raw in (b"bytes-\xff\xfe", b"line\nbreak", b"escape\x1b[2J", "bidi\u202egnp.exe".encode()):
        with open(os.path.join(os.fsencode(outputs), raw), "wb") as file:
            file.write(SECRET)
    (outputs / "folder" / "empty-folder").mkdir()
    with open(outputs / "~giant", "wb") as file:
        file.truncate(GIANT)
    dig(outputs, DEPTH)


def make_socket(folder: Path) -> None:
    """A socket's path is limited to 108 bytes: bind it from within."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
    finally:
        os.fchdir(before)
        os.close(before)


def dig(folder: Path, depth: int) -> None:
    """Folders `d/d/d/...` with a file at the bottom, deeper than any path may be long."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def crowd(folder: Path, count: int) -> None:
    """`count` empty files in one folder."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        os.mknod(f"{number:06}", stat.S_IFREG | 0o600, dir_fd=here)
    os.close(here)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
