"""The one module that talks to Docker: the few calls that we need, in our own words, with our own errors.

Each call is a single HTTP request on a kept-alive connection (about 0.6 ms of CPU). Bodies are made by us and go
through the SDK's low-level client, whose high-level objects would inspect before and after everything.
An engine that does not answer raises `EngineUnreachable`: silence never reads as "gone".
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast
from urllib.parse import quote

import docker
import docker.errors
import docker.tls
import requests
import urllib3.exceptions

from compute_site.core.errors import InfrastructureFailed
from workers.sandbox import refusals
from workers.sandbox.events import EVENT_KINDS, EventStream
from workers.sandbox.facts import (
    ContainerFacts,
    EngineFacts,
    Event,
    ImageFacts,
    container_facts,
    engine_facts,
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

JSON = {"Content-Type": "application/json"}
PLAIN = {"Accept-Encoding": "identity"}  # the engine would spend its CPU on gzip
PULL_SILENCE = 120.0  # seconds without a line of progress after which a pull is given up


class EngineUnreachable(InfrastructureFailed):
    """The engine did not answer, or not in time. What was asked may have happened, or may still happen."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("engine_lost", detail)


class NameTaken(InfrastructureFailed):
    """A container of this name exists: `facts` tells whose it is (None when it vanished in between)."""

    def __init__(self, facts: ContainerFacts | None) -> None:
        super().__init__("start_lost", f"the name {facts.name if facts else 'of its container'} is taken")
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


class EngineClient:
    """One engine. Safe to share between threads; nothing is sent before the first call."""

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
                with _answered():
                    self._api = docker.APIClient(
                        base_url=self.endpoint,
                        version="auto",
                        timeout=cast(int, self.timeout),
                        tls=self._tls.config() if self._tls else False,
                        max_pool_size=32,
                    )
                self._api.trust_env = (
                    False  # no proxies, no netrc, no foreign certificates; 0.15 ms a call less
                )
            return self._api

    def close(self) -> None:
        """Give the connections back; the next call opens new ones."""
        with self._lock:
            if self._api is not None:
                self._api.close()
                self._api = None

    # -- the engine and its images

    def facts(self) -> EngineFacts:
        """The engine's description of itself: for registration and probes, not for every job."""
        raw = self._get_json("/info")
        return engine_facts(raw, str(self.api.api_version), self._disk_mib(raw.get("DockerRootDir", "")))

    def _disk_mib(self, data_root: str) -> int | None:
        if not self.endpoint.startswith("unix:") or not os.path.isdir(data_root):
            return None
        status = os.statvfs(data_root)
        return status.f_blocks * status.f_frsize // 2**20

    def image(self, reference: str) -> ImageFacts | None:
        """A local image by id, tag or digest; None when the engine has none. Nothing is pulled."""
        raw = self._get_json(f"/images/{quote(reference, safe='/:@')}/json")
        return image_facts(raw) if raw is not None else None

    def pull(self, reference: str, deadline: float) -> ImageFacts:
        """Fetch an image whose registry the caller has allowed; `deadline` is a value of `time.monotonic()`.

        Raises ExecutionFailed (image_not_found, image_unauthorized), InfrastructureFailed (registry_unavailable,
        pull_timeout, disk_full) or EngineUnreachable. When we leave early the engine drops the download.
        """
        name, tag = refusals.split_reference(reference)
        silence = max(0.1, min(PULL_SILENCE, deadline - time.monotonic()))
        try:
            params = {"fromImage": name, "tag": tag}
            response = self._call("POST", "/images/create", params=params, stream=True, timeout=silence)
            with response, _answered():
                refusals.follow_pull(response.iter_lines(), deadline)
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

    # -- a container's life

    def create(self, name: str, config: dict[str, Any]) -> str:
        """Create a container and return its id; `config` is the whole body of the request.

        Raises NameTaken when the name exists, ExecutionFailed (image_refused) or InfrastructureFailed
        (cannot_start, disk_full) when the engine refuses, EngineUnreachable when it does not answer: then the container may exist, now or later.
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
        """Start a container that the caller has just seen as `created`: Docker would run an exited one again.

        Raises ExecutionFailed (image_refused), InfrastructureFailed (cannot_start, disk_full), or EngineUnreachable
        after `timeout` seconds: then it may have started, or still start.
        """
        try:
            self._call("POST", f"/containers/{container_id}/start", timeout=timeout)
        except docker.errors.APIError as error:
            raise refusals.of_start(refusals.text(error)) from error

    def inspect_raw(self, id_or_name: str) -> dict[str, Any] | None:
        """Everything the engine knows of a container, for read-back and receipt; None only on 404."""
        return cast("dict[str, Any] | None", self._get_json(f"/containers/{id_or_name}/json"))

    def inspect(self, id_or_name: str) -> ContainerFacts | None:
        """A container's state; None only when the engine answers that there is none."""
        raw = self.inspect_raw(id_or_name)
        return container_facts(raw) if raw is not None else None

    def signal(self, container_id: str, signal: str = "TERM") -> bool:
        """Send a signal to the container's first process; False when it was not running or is gone."""
        return self._accepted(
            "POST", f"/containers/{container_id}/kill", (404, 409), params={"signal": signal}
        )

    def remove(self, container_id: str) -> bool:
        """Kill and remove a container with its anonymous volumes: True when gone, False when not yet."""
        url, params = f"/containers/{container_id}", {"v": "1", "force": "1"}
        try:
            return self._accepted("DELETE", url, (409, 500), params=params, timeout=60)
        except docker.errors.NotFound:
            return True

    def list_site(self, site: str) -> list[ContainerFacts]:
        """All containers with the site's label in any state: status and labels (inspect for exit facts)."""
        filters = json.dumps({"label": [f"{LABEL_PREFIX}site={site}"]})
        rows = self._get_json("/containers/json", params={"all": "1", "filters": filters})
        return [listed_facts(row) for row in rows]

    def events(self, site: str, since: int | None = None) -> EventStream:
        """Open the stream now, so that a listing made after this call misses nothing. `since`: Unix seconds."""
        api = self.api
        filters = {"type": ["container"], "event": list(EVENT_KINDS), "label": [f"{LABEL_PREFIX}site={site}"]}
        try:
            with _answered():
                return EventStream(api.events(since=since, filters=filters, decode=True))
        except docker.errors.APIError as error:
            raise EngineUnreachable(refusals.text(error)) from error

    # -- files in and out

    def put_archive(self, container_id: str, path: str, data: bytes | IO[bytes] | Iterable[bytes]) -> None:
        """Unpack a tar stream into `path` of a container, running or not. Raises InfrastructureFailed."""
        url = f"/containers/{container_id}/archive"
        try:
            self._call("PUT", url, params={"path": path}, data=data, timeout=300)
        except docker.errors.APIError as error:
            raise InfrastructureFailed("storage_failed", refusals.text(error)) from error

    @contextmanager
    def get_archive(self, container_id: str, path: str) -> Iterator[IO[bytes] | None]:
        """A tar stream of `path` to read from, None when container or path do not exist. Hostile content."""
        url = f"/containers/{container_id}/archive"
        try:
            response = self._call("GET", url, params={"path": path}, headers=PLAIN, stream=True, timeout=300)
        except docker.errors.NotFound:
            yield None
            return
        except docker.errors.APIError as error:
            raise InfrastructureFailed("storage_failed", refusals.text(error)) from error
        with response:
            yield cast("IO[bytes]", _Answer(response.raw))

    def create_volume(self, name: str, labels: dict[str, str]) -> None:
        """Make a named volume; one that exists is left as it is."""
        try:
            self._call("POST", "/volumes/create", body={"Name": name, "Labels": labels})
        except docker.errors.APIError as error:
            raise InfrastructureFailed("storage_failed", refusals.text(error)) from error

    def has_volume(self, name: str) -> bool:
        """False only when the engine answers that there is none."""
        return self._get_json(f"/volumes/{name}") is not None

    def remove_volume(self, name: str) -> bool:
        """Remove a named volume. True when it is gone, False while a container still uses it."""
        try:
            return self._accepted("DELETE", f"/volumes/{name}", (409,), timeout=300)
        except docker.errors.NotFound:
            return True

    def list_volumes(self, site: str) -> list[str]:
        """Names of the volumes with the site's label."""
        filters = json.dumps({"label": [f"{LABEL_PREFIX}site={site}"]})
        return [
            row["Name"] for row in self._get_json("/volumes", params={"filters": filters})["Volumes"] or ()
        ]

    def volume_sizes(self) -> dict[str, int]:
        """Bytes in each named volume, as the engine counts them: it walks them all, so ask rarely."""
        found = self._get_json("/system/df", params={"type": "volume"}, timeout=120)
        return {row["Name"]: (row.get("UsageData") or {}).get("Size", 0) for row in found["Volumes"] or ()}

    # -- one request

    def _call(
        self, method: str, path: str, *, body: Any = None, timeout: float | None = None, **options: Any
    ) -> requests.Response:
        """One request; a status of 400 or more raises the SDK's APIError, no answer EngineUnreachable."""
        api = self.api
        if body is not None:
            options |= {"data": json.dumps(body).encode(), "headers": JSON}
        with _answered():
            url = f"{api.base_url}/v{api.api_version}{path}"
            response = api.request(method, url, timeout=timeout or self.timeout, **options)
            try:
                response.raise_for_status()
            except requests.exceptions.HTTPError as error:
                docker.errors.create_api_error_from_http_exception(error)
            return response

    def _get_json(self, path: str, **options: Any) -> Any:
        """A GET that answers JSON, or None on 404 and only then; any other refusal is silence."""
        try:
            response = self._call("GET", path, **options)
        except docker.errors.NotFound:
            return None
        except docker.errors.APIError as error:
            raise EngineUnreachable(refusals.text(error)) from error
        with _answered():
            return response.json()

    def _accepted(self, method: str, path: str, not_done: tuple[int, ...], **options: Any) -> bool:
        """True when the engine did it, False for a status in `not_done`; NotFound passes through."""
        try:
            self._call(method, path, **options)
        except docker.errors.APIError as error:
            if error.status_code in not_done:
                return False
            if error.status_code == 404:
                raise
            raise EngineUnreachable(refusals.text(error)) from error
        return True


class _Answer:
    """A body to read from, whose breaks are the engine's silence; errors of whoever reads it stay their own."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        with _answered():
            return cast("bytes", self._raw.read(size))


@contextmanager
def _answered() -> Iterator[None]:
    """Every way in which an engine can fail to answer becomes EngineUnreachable; its refusals pass through."""
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
