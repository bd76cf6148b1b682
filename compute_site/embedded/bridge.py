"""A bridge of our own, made without any program: an engine must not touch another engine's `docker0`."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from pathlib import Path

_SIOCBRADDBR = 0x89A0
_SIOCBRDELBR = 0x89A1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def bridge_exists(name: str) -> bool:
    """True when an interface of that name exists."""
    return Path("/sys/class/net", name).exists()


def make_bridge(name: str) -> bool:
    """Make an empty bridge; True when it exists afterwards, False when the kernel refuses it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as control:
        try:
            fcntl.ioctl(control, _SIOCBRADDBR, name.encode() + b"\0")
        except OSError as error:
            return error.errno == errno.EEXIST
    return True


def remove_bridge(name: str) -> None:
    """Take it down and remove it; nothing happens when there is none."""
    if not bridge_exists(name):
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as control:
        request = struct.pack("16sh14x", name.encode(), 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", name.encode(), flags & ~_IFF_UP))
        fcntl.ioctl(control, _SIOCBRDELBR, name.encode() + b"\0")
