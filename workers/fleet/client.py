"""A remote worker's side of the wire: signed requests over HTTP. Pure: no Django; the clock is passed in."""

import base64
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from workers.fleet import signing

TIMEOUT_SECONDS = 30
PROOF_SECONDS = 3600


class Unreachable(Exception):
    """No answer, or one that says to come again: the same may be sent once more."""


class RefusedRequest(Exception):
    """The site refused: `status` and `code` are of its problem."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code


class Transport(Protocol):
    """Sends one request; returns status and body. Raises OSError when there is no answer."""

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes]: ...


def over_http(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    """The transport of every real agent."""
    request = urllib.request.Request(url, data=body or None, headers=dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@dataclass(frozen=True)
class SignedClient:
    """One key speaking to one site. `site_id` is the audience of everything it signs."""

    url: str
    site_id: str
    key: Ed25519PrivateKey
    transport: Transport = over_http
    clock: Callable[[], float] = time.time

    def headers(self, method: str, path: str, query: str, body: bytes) -> dict[str, str]:
        """The headers of one request, with a nonce that was never used."""
        timestamp, nonce = int(self.clock()), secrets.token_urlsafe(24)
        data = signing.request_message(
            self.site_id, method, path, query=query, timestamp=timestamp, nonce=nonce, body=body
        )
        return {
            signing.KEY_HEADER: signing.key_text(self.key),
            signing.TIMESTAMP_HEADER: str(timestamp),
            signing.NONCE_HEADER: nonce,
            signing.SIGNATURE_HEADER: signing.sign(self.key, data),
            "Content-Type": "application/json",
        }

    def call(self, method: str, path: str, data: Any = None) -> Any:
        """Send a request to `path` below /api/v1; returns the answer. Raises Unreachable or RefusedRequest."""
        address = urlsplit(f"{self.url.rstrip('/')}/api/v1{path}")
        body = b"" if data is None else json.dumps(data).encode()
        headers = self.headers(method, address.path, address.query, body)
        try:
            status, answer = self.transport(method, address.geturl(), headers, body)
        except OSError as error:
            raise Unreachable(str(error)) from error
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unreachable(f"the site answered {status}")
        if status >= HTTPStatus.BAD_REQUEST:
            raise _refusal(status, answer)
        return json.loads(answer)


def _refusal(status: int, answer: bytes) -> RefusedRequest:
    try:
        problem = json.loads(answer)
    except ValueError:
        problem = {}
    told = "; ".join(f"{one['pointer']}: {one['detail']}" for one in problem.get("errors", []))
    return RefusedRequest(status, problem.get("code", ""), f"{problem.get('detail', '')} {told}".strip())


def bind(owner: Ed25519PrivateKey, site_id: str, statement: Mapping[str, Any]) -> dict[str, Any]:
    """The owner's binding, ready to be registered with: statement and signature."""
    data = signing.message(signing.BINDING, site_id, statement["not_after"], dict(statement))
    return {"binding": dict(statement), "signature": signing.sign(owner, data)}


def result_body(
    client: SignedClient,
    assignment: Mapping[str, Any],
    *,
    manifest: Mapping[str, Any],
    sha256: str,
    contents: Mapping[str, bytes],
    run_seconds: float | None,
    log: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body that reports a success: manifest, proof by the client's key, every content, and the log by stream."""
    expires = int(client.clock()) + PROOF_SECONDS
    message = signing.proof_message(client.site_id, sha256, assignment["unit"], expires)
    return {
        "token": assignment["token"],
        "success": True,
        "manifest": dict(manifest),
        "proof": {"signature": signing.sign(client.key, message), "expires": expires},
        "contents": {digest: base64.b64encode(data).decode() for digest, data in contents.items()},
        "run_seconds": run_seconds,
        "log": dict(log or {}),
    }
