"""The demo's client: refusals become one readable line, downloads are hashed as they come."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from compute_site.embedded.demo_client import Client
from compute_site.embedded.progress import Failed

PROBLEM = {
    "title": "Bad Request",
    "detail": "The job was not admitted.",
    "errors": [{"pointer": "/resources/cpu", "code": "invalid", "detail": "at most 2 per job"}],
}


class Site(BaseHTTPRequestHandler):
    """Answers as a site does, and keeps what it was asked."""

    asked: list[tuple[str, str, dict[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.command, self.path, dict(self.headers)))
        if self.path.endswith("/jobs/gone"):
            self.answer(404, b"<html>not JSON</html>")
        elif "/logs?" in self.path:
            self.answer(200, b"\xffbytes\n", {"X-Next-Offset": "107"})
        elif "/artifacts/" in self.path:
            self.answer(200, b"model")
        else:
            self.answer(200, json.dumps({"results": [{"slug": "small"}], "next": None}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.command, self.path, dict(self.headers)))
        self.answer(400, json.dumps(PROBLEM).encode())

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def client():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    Site.asked.clear()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Client(f"http://127.0.0.1:{server.server_port}/", "cs_token")
    server.shutdown()
    server.server_close()


def test_every_call_carries_the_token_and_every_submit_a_key_of_its_own(client):
    assert client.environments() == [{"slug": "small"}]
    for _ in range(2):
        with pytest.raises(Failed):
            client.submit({"environment": "local/small"})
    assert {headers["Authorization"] for _, _, headers in Site.asked} == {"Bearer cs_token"}
    keys = [headers["Idempotency-Key"] for method, _, headers in Site.asked if method == "POST"]
    assert len(set(keys)) == 2


def test_a_refusal_is_told_in_the_sites_words(client):
    with pytest.raises(
        Failed, match=r"answered 400: The job was not admitted\. /resources/cpu: at most 2 per job"
    ):
        client.submit({})
    with pytest.raises(Failed, match="answered 404: <html>not JSON"):
        client.job("gone")


def test_a_silent_site_is_told_too():
    with pytest.raises(Failed, match="does not answer"):
        Client("http://127.0.0.1:9", "cs_token").environments()


def test_logs_are_bytes_and_go_on_where_they_stopped(client):
    assert client.log("j", 100) == (b"\xffbytes\n", 107)
    assert Site.asked[-1][1] == "/api/v1/jobs/j/logs?stream=stdout&after=100"


def test_the_hash_is_of_what_arrived(client):
    assert client.sha256_of("j", "a folder/model.json") == hashlib.sha256(b"model").hexdigest()
    assert Site.asked[-1][1] == "/api/v1/jobs/j/artifacts/a%20folder/model.json"
