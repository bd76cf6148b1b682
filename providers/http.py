"""One call to a provider's API, with a bound on everything; every failure as one of our errors."""

import contextlib
import functools
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx

from providers.errors import (
    InsufficientCredit,
    MalformedResponse,
    NotFound,
    OutcomeUnknown,
    PermissionRefused,
    ProviderAuthError,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
)
from providers.guardrails import check_body

MAX_ANSWER_BYTES = 16 * 1024 * 1024
CALL_SECONDS = 60.0
TIMEOUT = httpx.Timeout(20.0, connect=5.0)
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
Refusal = Callable[[int, Any], type[ProviderError] | None]
_WAIT = re.compile(r"try again in (\d+(?:\.\d+)?) ?s", re.I)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates to trust, read once: every pass of an account makes a connection of its own."""
    return httpx.create_ssl_context(trust_env=False)


class Connection:
    """Where a provider is and the key that opens it. The key is in the header and nowhere else."""

    def __init__(
        self, base_url: str, header: str, prefix: str, key: str, *, timeout: httpx.Timeout = TIMEOUT
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._client = httpx.Client(
            headers={header: f"{prefix}{key}", "Accept": "application/json"},
            timeout=timeout,
            follow_redirects=False,  # A redirect would carry the key elsewhere.
            trust_env=False,
            verify=_trusted(),
        )

    def __repr__(self) -> str:
        return f"Connection({self._base_url})"

    def close(self) -> None:
        """Close what is kept open."""
        self._client.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        creates: bool = False,
        refusal: Refusal | None = None,
    ) -> Any:
        """The answer as JSON, None for an empty one. `creates`: a lost or unreadable answer is `OutcomeUnknown`.

        `refusal` tells from status and body which error a refusal is; None = by the status alone.
        """
        check_body(body, self._key)
        request = self._client.build_request(
            method, self._base_url + path, json=body, params=params, headers=headers
        )
        status, answer_headers, content = self._exchange(request, path, creates)
        where: dict[str, Any] = {"method": method, "path": path, "status": status}
        if 200 <= status < 300:
            if not content.strip():
                return None
            try:
                return json.loads(content)
            except ValueError:
                pass
            raise (OutcomeUnknown if creates else MalformedResponse)("the answer is no JSON", **where)
        if status >= 500 and creates:
            raise OutcomeUnknown("a fault of theirs after we asked to create", **where)
        told = _told(content)
        if status == 429:
            raise _rate_limited(answer_headers, told, where)
        found = (refusal(status, told) if refusal else None) or _by_status(status, creates)
        raise found(_words(found), **where)

    def stream(self, path: str, params: Mapping[str, str], *, endless: bool = False) -> Iterator[bytes]:
        """A text in pieces, as it comes; cut after the longest time of a call unless `endless`."""
        ends = time.monotonic() + CALL_SECONDS
        try:
            with self._client.stream("GET", self._base_url + path, params=dict(params)) as response:
                if response.status_code != 200:
                    found = _by_status(response.status_code, False)
                    raise found(_words(found), method="GET", path=path, status=response.status_code)
                for piece in response.iter_bytes():
                    yield piece
                    if not endless and time.monotonic() > ends:
                        return
        except httpx.HTTPError as error:
            problem = type(error).__name__
        else:
            return
        raise ProviderUnavailable(problem, method="GET", path=path)

    def _exchange(self, request: httpx.Request, path: str, creates: bool) -> tuple[int, httpx.Headers, bytes]:
        lost: type[ProviderError] = OutcomeUnknown if creates else ProviderUnavailable
        try:
            response = self._client.send(request, stream=True)
            try:
                content = _bounded(response)
            finally:
                response.close()
        except NEVER_SENT as error:
            problem, lost = type(error).__name__, ProviderUnavailable
        except (httpx.HTTPError, _TooMuch) as error:
            problem = type(error).__name__
        else:
            return response.status_code, response.headers, content
        # Raised out here, so that no cause with headers in it hangs on our error.
        raise lost(problem, method=request.method, path=path)


class _TooMuch(Exception):
    """The answer is longer, in bytes or in time, than we read."""


def _bounded(response: httpx.Response) -> bytes:
    ends, content = time.monotonic() + CALL_SECONDS, bytearray()
    for piece in response.iter_bytes():
        content += piece
        if len(content) > MAX_ANSWER_BYTES or time.monotonic() > ends:
            raise _TooMuch
    return bytes(content)


def _told(content: bytes) -> Any:
    """The error's body for telling refusals apart; None when it is no JSON. It never gets into a message."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def error_text(told: Any) -> str:
    """Code and words of an error's body in lower case, whichever of the usual shapes it has."""
    if not isinstance(told, dict):
        return ""
    inner = told.get("error")
    parts = [told.get("code"), told.get("message"), told.get("detail"), told.get("reason")]
    parts += [inner.get("code"), inner.get("message")] if isinstance(inner, dict) else [inner]
    return " ".join(part for part in parts if isinstance(part, str)).lower()


def _rate_limited(headers: httpx.Headers, told: Any, where: dict[str, Any]) -> RateLimited:
    error = RateLimited("too many requests", **where)
    found = _WAIT.search(error_text(told))
    text = headers.get("Retry-After") or (found[1] if found else "")
    with contextlib.suppress(ValueError):
        error.wait = min(max(float(text), 1.0), 3600.0)
    return error


def _by_status(status: int, creates: bool) -> type[ProviderError]:
    known: dict[int, type[ProviderError]] = {
        401: ProviderAuthError,
        402: InsufficientCredit,
        403: PermissionRefused,
        404: NotFound,
    }
    if status in known:
        return known[status]
    if status < 400 or status in (408, 409):  # A redirect, a time-out, a conflict: it may have been done.
        return OutcomeUnknown if creates else MalformedResponse if status < 400 else ProviderUnavailable
    return ProviderUnavailable if status >= 500 else ProviderError


def _words(found: type[ProviderError]) -> str:
    return found.code.replace("_", " ")
