"""An HTTP server in a thread whose answers can be scripted to go wrong."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Fault:
    """One wrong answer to the next `times` requests that match. `after`: what was asked is done all the same."""

    method: str
    path: str  # A regular expression for all of the path.
    status: int = 500
    body: bytes = b'{"error": "internal"}'
    after: bool = False
    drop: bool = False  # The connection is closed without an answer.
    hang_seconds: float = 0.0
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True)
class Request:
    """What came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    size: int


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class FakeProvider:
    """Server, requests seen, faults to come. A subclass says what its routes do.

    `with FakeX() as fake` serves at `fake.url` until the end; `fake.lock` guards the state.
    """

    prefix = ""

    def __init__(self, key: str) -> None:
        self.key = key
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Connection)
        self._server.daemon_threads = True
        self._server.fake = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{self.prefix}"

    def __enter__(self) -> Any:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def now(self) -> float:
        """Seconds since the epoch; tests put a clock of theirs here."""
        return time.time()

    def answer(self, request: Request) -> Any:
        """The body of a 200, None for an empty one, a generator of bytes for a stream. Raises Refused."""
        raise NotImplementedError

    def seen(self, method: str, path: str) -> list[Request]:
        """The requests so far that match, path as a regular expression."""
        return [one for one in self.requests if one.method == method and re.fullmatch(path, one.path)]

    def take_fault(self, request: Request) -> Fault | None:
        """The first fault that matches; it is used up after its `times`."""
        for fault in self.faults:
            if fault.method == request.method and re.fullmatch(fault.path, request.path):
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # Head and body in one packet: two would wait for each other's acknowledgement.

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_PUT = do_PATCH = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""

    def _serve(self) -> None:
        fake: FakeProvider = self.server.fake  # type: ignore[attr-defined]
        request = self._read(fake.prefix)
        with fake.lock:
            fake.requests.append(request)
            fault = fake.take_fault(request)
            status, body = (0, None) if fault and not fault.after else self._result(fake, request)
        if fault is None:
            self._send(status, body)
        elif fault.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            time.sleep(fault.hang_seconds)
            self._write(fault.status, fault.body, fault.content_type, fault.headers)

    def _read(self, prefix: str) -> Request:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(size)
        return Request(
            method=self.command,
            path=parts.path.removeprefix(prefix),
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=json.loads(content) if content else None,
            size=size,
        )

    def _result(self, fake: FakeProvider, request: Request) -> tuple[int, Any]:
        try:
            return 200, fake.answer(request)
        except Refused as refused:
            return refused.status, refused.body

    def _send(self, status: int, body: Any) -> None:
        if isinstance(body, bytes):
            self._write(status, body, "text/plain" if status == 200 else "text/html", {})
        else:
            content = b"" if body is None else json.dumps(body).encode()
            self._write(status, content, "application/json", {})

    def _write(self, status: int, content: bytes, kind: str, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # Whoever asked has gone.
            self.close_connection = True
