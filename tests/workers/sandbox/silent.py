"""Engines that do not answer as they should: a socket that hangs, breaks off, or refuses everything."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = b'{"ApiVersion": "1.41"}'


def answer(status: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


@contextmanager
def engine_that_says(folder: Path, reply: bytes, *, close: bool) -> Iterator[str]:
    """An endpoint that tells its version and answers everything else with `reply`, then closes or hangs."""
    path = folder / "engine.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    peers: list[socket.socket] = []

    def talk(peer: socket.socket) -> None:
        while request := peer.recv(65536):
            if b" /version" in request:
                peer.sendall(answer("200 OK", VERSION))
                continue
            peer.sendall(reply)
            if close:
                peer.close()
                return

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            peers.append(peer)
            threading.Thread(target=talk, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"unix://{path}"
    finally:
        listener.close()
        for peer in peers:
            peer.close()
