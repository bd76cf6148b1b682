"""The one module that imports Docker's SDK: requests to one engine, and how they can end.

Each call is a single HTTP request on a kept-alive connection. Requests are made by us and go through the SDK's
transport: its high-level objects would inspect before and after everything, and a session's cookies, redirects and
proxies, which no engine has, cost more than the request.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

import docker
import docker.errors
import docker.tls
import requests
import urllib3.exceptions
from docker.transport import UnixHTTPAdapter
from requests.structures import CaseInsensitiveDict

from compute_site.core.errors import InfrastructureFailed, SiteError

JSON = {"Content-Type": "application/json"}
POOL = 32  # connections kept


class EngineUnreachable(InfrastructureFailed):
    """The engine did not answer, or not in time. What was asked may have happened, or may still happen."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("engine_lost", detail)


class Refused(SiteError):
    """The engine answered that it will not: `status` is HTTP's, `sentence` is the engine's."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(f"{status}: {sentence}")
        self.status = status
        self.sentence = sentence


class NotThere(Refused):
    """The engine itself answered that there is no such thing."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files for an engine reached over TCP with client certificates."""

    ca: str
    certificate: str
    key: str

    def config(self) -> docker.tls.TLSConfig:
        """The SDK's form of it; the engine's certificate is always verified."""
        return docker.tls.TLSConfig(client_cert=(self.certificate, self.key), ca_cert=self.ca, verify=True)


class _OnePool(UnixHTTPAdapter):
    """The SDK's transport over a socket, but with one pool: it has one for each URL, so that nothing is kept alive."""

    def get_connection(self, url: str | bytes, proxies: Any = None) -> Any:
        return super().get_connection(self.socket_path, proxies)


class Connection:
    """Requests to one engine. Safe to share between threads; nothing is sent before the first call."""

    def __init__(self, endpoint: str, *, tls: Tls | None = None, timeout: float = 20.0) -> None:
        """`endpoint` is `unix:///path` or `tcp://host:port`; `timeout` in seconds is for each ordinary call."""
        self.endpoint = endpoint
        self.timeout = timeout
        self._tls = tls
        self._lock = threading.Lock()
        self._api: docker.APIClient | None = None

    @property
    def api(self) -> docker.APIClient:
        """The SDK's client; at first use the API version is agreed, once. Raises EngineUnreachable."""
        with self._lock:
            if self._api is None:
                with answered():
                    self._api = docker.APIClient(
                        base_url=self.endpoint,
                        version="auto",
                        timeout=cast(int, self.timeout),
                        tls=self._tls.config() if self._tls else False,
                        max_pool_size=POOL,
                    )
                self._api.trust_env = False  # no proxies, no netrc, no foreign certificates
                if self.endpoint.startswith("unix://"):
                    self._api.mount(self._api.base_url, _OnePool(f"http+{self.endpoint}", max_pool_size=POOL))
            return self._api

    def close(self) -> None:
        """Give the connections back; the next call opens new ones."""
        with self._lock:
            if self._api is not None:
                self._api.close()
                self._api = None

    def call(
        self, method: str, path: str, *, body: Any = None, timeout: float | None = None, **options: Any
    ) -> requests.Response:
        """One request. Raises Refused for a status of 400 or more, EngineUnreachable when there is no answer."""
        if body is not None:
            options |= {"data": json.dumps(body).encode(), "headers": JSON}
        with answered():
            response = self._send(method, path, timeout or self.timeout, **options)
            if response.status_code >= 400:
                raise _refusal(response)
            return response

    def _send(
        self,
        method: str,
        path: str,
        timeout: float,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        stream: bool = False,
    ) -> requests.Response:
        """One request, its answer read to the end unless it is a `stream`."""
        api = self.api
        request = requests.PreparedRequest()
        request.method, request.hooks = method, {}
        request.url = f"{api.base_url}/v{api.api_version}{path}" + (f"?{urlencode(params)}" if params else "")
        request.headers = CaseInsensitiveDict(headers or {})
        request.prepare_body(data, None)
        adapter = api.get_adapter(request.url)
        response = adapter.send(
            request, stream=stream, timeout=timeout, verify=api.verify or False, cert=api.cert
        )
        if not stream:
            _ = response.content
        return response

    def find(self, path: str, **options: Any) -> dict[str, Any] | None:
        """A GET of one thing: None when the engine says that it has none; any other refusal is silence."""
        try:
            return cast("dict[str, Any]", self.get(path, **options))
        except NotThere:
            return None

    def get(self, path: str, **options: Any) -> Any:
        """A GET that answers JSON. Raises NotThere; any other refusal is silence."""
        try:
            response = self.call("GET", path, **options)
        except NotThere:
            raise
        except Refused as error:
            raise EngineUnreachable(str(error)) from error
        with answered():
            return response.json()

    def accepted(self, method: str, path: str, not_done: tuple[int, ...], **options: Any) -> bool:
        """True when the engine did it, False for a status in `not_done`. Raises NotThere; the rest is silence."""
        try:
            self.call(method, path, **options)
        except NotThere:
            raise
        except Refused as error:
            if error.status in not_done:
                return False
            raise EngineUnreachable(str(error)) from error
        return True

    def listen(self, filters: Mapping[str, list[str]], since: int | None) -> Any:
        """The SDK's stream of decoded events, with its headers already received."""
        api = self.api
        try:
            with answered():
                return api.events(since=since, filters=dict(filters), decode=True)
        except docker.errors.APIError as error:
            raise EngineUnreachable(str(error)) from error


class Body:
    """An answer's body to read from, whose breaks are the engine's silence; a reader's own errors stay its own."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, all that is left when negative. Raises EngineUnreachable."""
        with answered():
            return cast("bytes", self._raw.read(size))


def _refusal(response: requests.Response) -> Refused:
    """NotThere only when it is the engine's own word about the thing, and not the page of a proxy."""
    try:
        sentence = str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return Refused(response.status_code, response.text[:200])
    if response.status_code == 404 and "page not found" not in sentence:
        return NotThere(404, sentence)
    return Refused(response.status_code, sentence)


@contextmanager
def answered() -> Iterator[None]:
    """Every way in which an engine can fail to answer becomes EngineUnreachable; our own errors pass through."""
    try:
        yield
    except docker.errors.APIError:
        raise
    except (
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        docker.errors.DockerException,
        OSError,
    ) as error:
        raise EngineUnreachable(str(error)) from error
