"""A client of the site's REST API as anybody could write one: the standard library and a token."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode

from .progress import Failed

TIMEOUT_SECONDS = 20
PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """Body and headers of a response that was not an error."""

    body: bytes
    headers: Any

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Client:
    """Speaks to one site with one token. Every refusal becomes `Failed` with the site's own words."""

    def __init__(self, url: str, token: str) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token

    def environments(self) -> list[dict[str, Any]]:
        """What the site offers to this token."""
        return _items(self._call("GET", "/environments").json())

    def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job; the idempotency key makes a repeated send harmless. Returns the admitted job."""
        return self._call("POST", "/jobs", job, {"Idempotency-Key": str(uuid.uuid4())}).json()

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as it stands now."""
        return self._call("GET", f"/jobs/{job_id}").json()

    def accounts(self) -> list[dict[str, Any]]:
        """The client's accounts with their balances."""
        return _items(self._call("GET", "/accounts").json())

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """What happened to the job, oldest first."""
        return _items(self._call("GET", f"/jobs/{job_id}/events").json())

    def log(self, job_id: str, after: int, stream: str = "stdout") -> tuple[bytes, int]:
        """The log's bytes from offset `after` on, and the offset to go on from."""
        query = urlencode({"stream": stream, "after": after})
        answer = self._call("GET", f"/jobs/{job_id}/logs?{query}")
        return answer.body, int(answer.headers.get("X-Next-Offset", after + len(answer.body)))

    def artifacts(self, job_id: str) -> list[dict[str, Any]]:
        """The job's stored outputs: path, size, sha256."""
        return _items(self._call("GET", f"/jobs/{job_id}/artifacts").json())

    def sha256_of(self, job_id: str, path: str) -> str:
        """Download one artifact and return the sha256 of what arrived."""
        digest = hashlib.sha256()
        with self._open("GET", f"/jobs/{job_id}/artifacts/{quote(path)}") as response:
            while piece := response.read(PIECE):
                digest.update(piece)
        return digest.hexdigest()

    def workers(self) -> list[dict[str, Any]]:
        """The remote workers of the site; there are none where the fleet is off."""
        return _items(self._call("GET", "/workers").json())

    def _call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        with self._open(method, path, body, headers) as response:
            return Answer(response.read(), response.headers)

    def _open(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> HTTPResponse:
        request = urllib.request.Request(self._base + path, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            raise Failed(f"{method} {path} answered {error.code}: {_problem(error.read())}") from None
        except OSError as error:
            raise Failed(f"{method} {path}: the site does not answer ({error}).") from None


def _items(listing: Any) -> list[dict[str, Any]]:
    """The rows of a listing, whether it comes in pages or whole."""
    return listing["results"] if isinstance(listing, dict) else listing


def _problem(body: bytes) -> str:
    """The readable part of an application/problem+json body."""
    try:
        problem = json.loads(body)
    except ValueError:
        return body[:200].decode(errors="replace")
    fields = "; ".join(
        f"{error.get('pointer', '')}: {error.get('detail', '')}" for error in problem.get("errors", [])
    )
    return f"{problem.get('detail') or problem.get('title', '')} {fields}".strip()
