"""Ports of this machine: a free one, and whether a site answers at one."""

from __future__ import annotations

import http.client
import socket


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serves(port: int) -> bool:
    """True when a web server answers at this loopback port, with anything but a fault of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
