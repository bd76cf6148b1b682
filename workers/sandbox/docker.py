"""The one module that talks to Docker: the few calls that we need, in our own words, with our own errors.

Each call is a single HTTP request on a kept-alive connection (about 0.6 ms of CPU). Bodies are made by us and go through
the SDK's low-level client, whose high-level objects would inspect before and after everything.
An engine that does not answer raises `EngineUnreachable`: silence never reads as "gone".
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import docker
import docker.errors
import docker.tls
import requests
import urllib3.exceptions

from compute_site.core.errors import ExecutionFailed, InfrastructureFailed
from workers.sandbox import refusals
from workers.sandbox.facts import (
    ContainerFacts,
    EngineFacts,
    Event,
    ImageFacts,
    container_facts,
    engine_facts,
    event,
    image_facts,
    listed_facts,
)
from workers.sandbox.spec import LABEL_PREFIX

__all__ = [
    "ContainerFacts",
    "EngineClient",
    "EngineFacts",
    "EngineUnreachable",
    "Event",
    "EventStream",
    "ImageFacts",
    "NameTaken",
    "Tls",
]

EVENT_KINDS = ["start", "die", "oom"]
PULL_SILENCE = 120.0  # seconds without a line of progress after which a pull is given up


class EngineUnreachable(InfrastructureFailed):
    """The engine did not answer, or not in time. What was asked may have happened, or may still happen."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("engine_unreachable", detail)


class NameTaken(InfrastructureFailed):
    """A container of this name exists: `facts` tells whose it is (None when it vanished in between)."""

    def __init__(self, facts: ContainerFacts | None) -> None:
        super().__init__("name_taken", facts.name if facts else "")
        self.facts = facts


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files for an engine reached over TCP with client certificates."""

    ca: str
    certificate: str
    key: str

    def config(self) -> docker.tls.TLSConfig:
        """The SDK's form of it; the engine's certificate is always verified."""
        return docker.tls.TLSConfig(client_cert=(self.certificate, self.key), ca_cert=self.ca, verify=True)


@contextmanager
def _answered() -> Iterator[None]:
    """Turn every way in which an engine can fail to answer into `EngineUnreachable`; its refusals pass through."""
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


class EventStream:
    """The site's `start`, `die` and `oom` events from the moment it is made; iterate it in one thread.

    It ends normally when the engine dies or `close` is called from any thread: after every end, and before trusting
    silence, list the containers and inspect them, for the engine replays at most its last 256 events.
    """

    def __init__(self, client: docker.APIClient, site: str, since: int | None) -> None:
        filters = {"type": ["container"], "event": EVENT_KINDS, "label": [f"{LABEL_PREFIX}site={site}"]}
        self._stream = client.events(since=since, filters=filters, decode=True)
        self._closed = False

    def __iter__(self) -> Iterator[Event]:
        try:
            for raw in self._stream:
                yield event(raw)
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ValueError, OSError):
            return

    def close(self) -> None:
        """End the iteration, also one that is blocked in another thread. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._stream.close()
        except (OSError, AttributeError):  # the engine closed it first
            return


class EngineClient:
    """One engine. Safe to share between threads; nothing is sent before the first call."""

    def __init__(self, endpoint: str, *, tls: Tls | None = None, timeout: float = 20.0) -> None:
        """`endpoint` is `unix:///path` or `tcp://host:port`; `timeout` in seconds holds for each ordinary call."""
        self.endpoint = endpoint
        self.timeout = timeout
        self._tls = tls
        self._lock = threading.Lock()
        self._client: docker.APIClient | None = None

    @property
    def api(self) -> docker.APIClient:
        """The SDK's client, made at first use, when the API version is agreed once. Raises EngineUnreachable."""
        with self._lock:
            if self._client is None:
                with _answered():
                    client = docker.APIClient(
                        base_url=self.endpoint,
                        version="auto",
                        timeout=self.timeout,
                        tls=self._tls.config() if self._tls else False,
                        max_pool_size=32,
                    )
                client.trust_env = False  # no proxies, no foreign certificates, no netrc; saves 0.15 ms a call
                self._client = client
            return self._client

    def close(self) -> None:
        """Give the connections back; the next call opens new ones."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _call(
        self,
        method: str,
        path: str,
        *arguments: str,
        body: Any = None,
        timeout: float | None = None,
        **options: Any,
    ) -> requests.Response:
        """One request; an HTTP status of 400 or more raises the SDK's APIError, no answer EngineUnreachable."""
        api = self.api
        if body is not None:
            options["data"] = json.dumps(body).encode()
            options["headers"] = {"Content-Type": "application/json"}
        with _answered():
            response = api.request(
                method, api._url(path, *arguments), timeout=timeout or self.timeout, **options
            )
            api._raise_for_status(response)
            return response

    def _json(self, path: str, *arguments: str, **options: Any) -> Any:
        """A GET that answers JSON, or None on 404 and only then."""
        try:
            response = self._call("GET", path, *arguments, **options)
        except docker.errors.NotFound:
            return None
        except docker.errors.APIError as error:
            raise EngineUnreachable(refusals.text(error)) from error
        with _answered():
            return response.json()

    def facts(self) -> EngineFacts:
        """The engine's description of itself (about 5 ms on the engine: for registration, not for every job)."""
        raw = self._json("/info")
        return engine_facts(raw, self.api._version, self._disk_mib(raw.get("DockerRootDir", "")))

    def _disk_mib(self, data_root: str) -> int | None:
        if not self.endpoint.startswith("unix:") or not os.path.isdir(data_root):
            return None
        status = os.statvfs(data_root)
        return status.f_blocks * status.f_frsize // 2**20

    def image(self, reference: str) -> ImageFacts | None:
        """A local image by id, tag or digest; None when the engine has none. Nothing is pulled."""
        raw = self._json("/images/{0}/json", reference)
        return image_facts(raw) if raw is not None else None

    def pull(self, reference: str, deadline: float) -> ImageFacts:
        """Fetch an image; `deadline` is a value of `time.monotonic()`. The caller has checked the registry is allowed.

        Raises ExecutionFailed (image_not_found, image_unauthorized), InfrastructureFailed (registry_unavailable,
        pull_timeout) or EngineUnreachable. Ending early makes the engine drop the download.
        """
        name, _, tag = reference.partition("@") if "@" in reference else _split_tag(reference)
        silence = max(0.1, min(PULL_SILENCE, deadline - time.monotonic()))
        try:
            response = self._call(
                "POST", "/images/create", params={"fromImage": name, "tag": tag}, stream=True, timeout=silence
            )
            with response:
                self._follow_pull(response, deadline)
        except docker.errors.APIError as error:
            raise refusals.of_pull(refusals.text(error)) from error
        except EngineUnreachable as error:
            if time.monotonic() >= deadline or "timed out" in error.detail.lower():
                raise InfrastructureFailed("pull_timeout", reference) from error
            raise
        facts = self.image(reference)
        if facts is None:
            raise InfrastructureFailed("registry_unavailable", f"{reference} was pulled and is not there")
        return facts

    def _follow_pull(self, response: requests.Response, deadline: float) -> None:
        with _answered():
            for line in response.iter_lines():
                if time.monotonic() >= deadline:
                    raise InfrastructureFailed("pull_timeout", "the deadline of the pull has passed")
                message = json.loads(line) if line else {}
                if "error" in message:
                    raise refusals.of_pull(str(message["error"]))

    def create(self, name: str, config: dict[str, Any]) -> str:
        """Create a container and return its id; `config` is the whole body of the request.

        Raises NameTaken when the name exists, ExecutionFailed or InfrastructureFailed (cannot_start) when the engine
        refuses, EngineUnreachable when it does not answer: then the container may exist, now or later.
        """
        try:
            response = self._call("POST", "/containers/create", body=config, params={"name": name})
        except docker.errors.APIError as error:
            if error.status_code == 409:
                raise NameTaken(self.inspect(name)) from error
            raise refusals.of_start(refusals.text(error)) from error
        with _answered():
            return str(response.json()["Id"])

    def start(self, container_id: str, timeout: float = 60) -> None:
        """Start a container whose status the caller has just seen to be `created`: Docker would run an exited one again.

        Raises ExecutionFailed or InfrastructureFailed (cannot_start), or EngineUnreachable after `timeout` seconds:
        then it may have started, or still start.
        """
        try:
            self._call("POST", "/containers/{0}/start", container_id, timeout=timeout)
        except docker.errors.APIError as error:
            raise refusals.of_start(refusals.text(error)) from error

    def inspect_raw(self, id_or_name: str) -> dict[str, Any] | None:
        """Everything the engine knows of a container, for the read-back and the receipt; None only on 404."""
        raw: dict[str, Any] | None = self._json("/containers/{0}/json", id_or_name)
        return raw

    def inspect(self, id_or_name: str) -> ContainerFacts | None:
        """A container's state; None only when the engine answers that there is none."""
        raw = self.inspect_raw(id_or_name)
        return container_facts(raw) if raw is not None else None

    def signal(self, container_id: str, signal: str = "TERM") -> bool:
        """Send a signal to the container's first process; False when it was not running or is gone."""
        return self._done(
            lambda: self._call("POST", "/containers/{0}/kill", container_id, params={"signal": signal}), (404, 409)
        )

    def remove(self, container_id: str) -> bool:
        """Kill and remove a container with its anonymous volumes. True when it is gone, False when it is still going."""
        try:
            return self._done(
                lambda: self._call(
                    "DELETE", "/containers/{0}", container_id, params={"v": "1", "force": "1"}, timeout=60
                ),
                (409, 500),
            )
        except docker.errors.NotFound:
            return True

    def _done(self, call: Callable[[], Any], not_done: tuple[int, ...]) -> bool:
        try:
            call()
        except docker.errors.APIError as error:
            if error.status_code in not_done:
                return False
            if error.status_code == 404:
                raise
            raise EngineUnreachable(refusals.text(error)) from error
        return True

    def list_site(self, site: str) -> list[ContainerFacts]:
        """All containers with the site's label in any state: status and labels only (inspect for exit facts)."""
        filters = json.dumps({"label": [f"{LABEL_PREFIX}site={site}"]})
        rows = self._json("/containers/json", params={"all": "1", "filters": filters})
        return [listed_facts(row) for row in rows]

    def events(self, site: str, since: int | None = None) -> EventStream:
        """Open the event stream now, so that a listing made after this call misses nothing. `since`: Unix seconds."""
        api = self.api
        with _answered():
            try:
                return EventStream(api, site, since)
            except docker.errors.APIError as error:
                raise EngineUnreachable(refusals.text(error)) from error

    def put_archive(self, container_id: str, path: str, data: bytes | IO[bytes] | Iterable[bytes]) -> None:
        """Unpack a tar stream into `path` of a container, running or not. Raises InfrastructureFailed."""
        try:
            self._call("PUT", "/containers/{0}/archive", container_id, params={"path": path}, data=data, timeout=300)
        except docker.errors.APIError as error:
            raise InfrastructureFailed("storage_failed", refusals.text(error)) from error

    @contextmanager
    def get_archive(self, container_id: str, path: str) -> Iterator[IO[bytes] | None]:
        """A tar stream of `path` as a readable file, or None when container or path do not exist; hostile content."""
        try:
            response = self._call(
                "GET", "/containers/{0}/archive", container_id, params={"path": path}, stream=True, timeout=300
            )
        except docker.errors.NotFound:
            yield None
            return
        except docker.errors.APIError as error:
            raise InfrastructureFailed("storage_failed", refusals.text(error)) from error
        with response, _answered():
            yield response.raw


def _split_tag(reference: str) -> tuple[str, str, str]:
    """`name[:tag]`, where a colon before the last slash belongs to a registry's port; the tag defaults to latest."""
    head, separator, tag = reference.rpartition(":")
    if not separator or "/" in tag:
        return reference, ":", "latest"
    return head, separator, tag


_ = ExecutionFailed  # raised through `refusals`; named in the docstrings above
