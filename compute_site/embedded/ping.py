"""Asks a Docker engine whether it is there, without the Docker SDK."""

from __future__ import annotations

import http.client
import socket


def answers(docker_host: str, seconds: float = 2.0) -> bool:
    """True when an engine behind this unix:// or tcp:// address answers a ping."""
    try:
        asked = connection(docker_host, seconds)
        asked.request("GET", "/_ping", headers={"Host": "docker"})
        return asked.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection(docker_host: str, seconds: float) -> http.client.HTTPConnection:
    """A connection, not opened yet, to the engine behind a unix:// or tcp:// address."""
    scheme, _, rest = docker_host.partition("://")
    if scheme == "unix":
        return _UnixConnection(rest, seconds)
    host, _, port = rest.rstrip("/").rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=seconds)
