"""The few things that are asked of an engine, in our own words, with our own errors.

An engine that does not answer raises `EngineUnreachable`: silence never reads as "gone".
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast
from urllib.parse import quote

from compute_site.core.errors import InfrastructureFailed
from workers.sandbox import refusals
from workers.sandbox.connection import (
    Body,
    Connection,
    EngineUnreachable,
    NotThere,
    Refused,
    Tls,
    answered,
)
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
    unframed,
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

PLAIN = {"Accept-Encoding": "identity"}  # the engine would spend its CPU on gzip
PULL_SILENCE = 120.0  # seconds without a line of progress after which a pull is given up


class NameTaken(InfrastructureFailed):
    """A container of this name exists: `facts` tells whose it is (None when it vanished in between)."""

    def __init__(self, facts: ContainerFacts | None) -> None:
        super().__init__("start_lost", f"the name {facts.name if facts else 'of its container'} is taken")
        self.facts = facts


class EngineClient(Connection):
    """One engine. Safe to share between threads; nothing is sent before the first call."""

    # -- the engine and its images

    def facts(self) -> EngineFacts:
        """The engine's description of itself: for registration and probes, not for every job."""
        raw = self.get("/info")
        return engine_facts(raw, str(self.api.api_version), self._disk_mib(raw.get("DockerRootDir", "")))

    def _disk_mib(self, data_root: str) -> int | None:
        if not self.endpoint.startswith("unix:") or not os.path.isdir(data_root):
            return None
        status = os.statvfs(data_root)
        return status.f_blocks * status.f_frsize // 2**20

    def image(self, reference: str) -> ImageFacts | None:
        """A local image by id, tag or digest; None when the engine has none, or says that none is called so.

        Nothing is pulled.
        """
        try:
            response = self.call("GET", f"/images/{quote(reference, safe='/:@')}/json")
        except Refused as error:
            if isinstance(error, NotThere) or refusals.is_no_name(error.sentence):
                return None
            raise EngineUnreachable(str(error)) from error
        with answered():
            return image_facts(response.json())

    def pull(self, reference: str, deadline: float) -> ImageFacts:
        """Fetch an image whose registry the caller has allowed; `deadline` is a value of `time.monotonic()`.

        Raises ExecutionFailed (image_not_found, image_unauthorized), InfrastructureFailed (registry_unavailable,
        pull_timeout, disk_full) or EngineUnreachable. When we leave early the engine drops the download.
        """
        name, tag = refusals.split_reference(reference)
        silence = max(0.1, min(PULL_SILENCE, deadline - time.monotonic()))
        try:
            params = {"fromImage": name, "tag": tag}
            response = self.call("POST", "/images/create", params=params, stream=True, timeout=silence)
            with response, answered():
                refusals.follow_pull(response.iter_lines(), deadline)
        except Refused as error:
            raise refusals.of_pull(error.sentence) from error
        except EngineUnreachable as error:
            if time.monotonic() >= deadline or "timed out" in error.detail.lower():
                raise InfrastructureFailed("pull_timeout", reference) from error
            raise
        facts = self.image(reference)
        if facts is None:
            raise InfrastructureFailed("registry_unavailable", f"{reference} was pulled and is not there")
        return facts

    def image_ids(self) -> set[str]:
        """Ids of the local images, without those that only other images are made of."""
        return {row["Id"] for row in self._listed("/images/json", {}, timeout=60)}

    def uses_image(self, image_id: str) -> bool:
        """Whether any container, of whomever and in whatever state, is made from the image or from one above it."""
        filters = json.dumps({"ancestor": [image_id]})
        return bool(self._listed("/containers/json", {"all": "1", "filters": filters}))

    def remove_image(self, reference: str) -> bool:
        """Take a name from an image, and the image with its last name; by id only an image of one name.

        Never forced. True when it is gone, False when the engine keeps it: a container uses it, it has more names, or the
        engine failed at it.
        """
        path = f"/images/{quote(reference, safe='/:@')}"
        try:
            return self.accepted("DELETE", path, (409, 500), params={"noprune": "1"}, timeout=120)
        except NotThere:
            return True

    # -- a container's life

    def create(self, name: str, config: dict[str, Any]) -> str:
        """Create a container and return its id; `config` is the whole body of the request.

        Raises NameTaken when the name exists, ExecutionFailed (image_refused) or InfrastructureFailed
        (cannot_start, disk_full) when the engine refuses, EngineUnreachable when it does not answer: then the
        container may exist, now or later.
        """
        try:
            response = self.call("POST", "/containers/create", body=config, params={"name": name})
        except Refused as error:
            if error.status == 409:
                raise NameTaken(self.inspect(name)) from error
            raise refusals.of_start(error.sentence) from error
        with answered():
            return str(response.json()["Id"])

    def start(self, container_id: str, timeout: float = 60) -> None:
        """Start a container that the caller has just seen as `created`: Docker would run an exited one again.

        Raises ExecutionFailed (image_refused), InfrastructureFailed (cannot_start, disk_full), or EngineUnreachable
        after `timeout` seconds: then it may have started, or still start.
        """
        try:
            self.call("POST", f"/containers/{container_id}/start", timeout=timeout)
        except Refused as error:
            raise refusals.of_start(error.sentence) from error

    def inspect_raw(self, id_or_name: str) -> dict[str, Any] | None:
        """Everything the engine knows of a container, for read-back and receipt; None when it says there is none."""
        return self.find(f"/containers/{id_or_name}/json")

    def inspect(self, id_or_name: str) -> ContainerFacts | None:
        """A container's state; None only when the engine answers that there is none."""
        raw = self.inspect_raw(id_or_name)
        return container_facts(raw) if raw is not None else None

    def log(self, container_id: str) -> str:
        """What a container of ours wrote, where the engine keeps its log: both streams, in order; a few lines."""
        params = {"stdout": "1", "stderr": "1", "tail": "20"}
        try:
            response = self.call("GET", f"/containers/{container_id}/logs", params=params)
        except Refused as error:
            raise EngineUnreachable(str(error)) from error
        return unframed(response.content).decode(errors="replace")

    def signal(self, container_id: str, signal: str = "TERM") -> bool:
        """Send a signal to the container's first process; False when it was not running or is gone."""
        try:
            return self.accepted(
                "POST", f"/containers/{container_id}/kill", (409,), params={"signal": signal}
            )
        except NotThere:
            return False

    def remove(self, container_id: str) -> bool:
        """Kill and remove a container with its anonymous volumes: True when gone, False when not yet."""
        url, params = f"/containers/{container_id}", {"v": "1", "force": "1"}
        try:
            return self.accepted("DELETE", url, (409, 500), params=params, timeout=60)
        except NotThere:
            return True

    def list_site(self, site: str) -> list[ContainerFacts]:
        """All containers with the site's label in any state: status and labels (inspect for exit facts)."""
        rows = self._listed("/containers/json", {"all": "1", "filters": _of_site(site)})
        return [listed_facts(row) for row in rows]

    def events(self, site: str, since: int | None = None) -> EventStream:
        """Open the stream now, so that a listing made after this call misses nothing. `since`: Unix seconds."""
        label = f"{LABEL_PREFIX}site={site}"
        return EventStream(
            self.listen({"type": ["container"], "event": list(EVENT_KINDS), "label": [label]}, since)
        )

    def _listed(self, path: str, params: dict[str, str], timeout: float | None = None) -> Any:
        """A listing can be empty, but never absent."""
        try:
            return self.get(path, params=params, timeout=timeout)
        except NotThere as error:
            raise EngineUnreachable(str(error)) from error

    # -- files in and out

    def put_archive(self, container_id: str, path: str, data: bytes | IO[bytes] | Iterable[bytes]) -> None:
        """Unpack a tar stream into `path` of a container, running or not. Raises InfrastructureFailed."""
        url = f"/containers/{container_id}/archive"
        try:
            self.call("PUT", url, params={"path": path}, data=data, timeout=300)
        except Refused as error:
            raise InfrastructureFailed("storage_failed", error.sentence) from error

    @contextmanager
    def get_archive(self, container_id: str, path: str) -> Iterator[IO[bytes] | None]:
        """A tar stream of `path` to read from, None when container or path do not exist. Hostile content."""
        url = f"/containers/{container_id}/archive"
        try:
            response = self.call("GET", url, params={"path": path}, headers=PLAIN, stream=True, timeout=300)
        except NotThere:
            yield None
            return
        except Refused as error:
            raise InfrastructureFailed("storage_failed", error.sentence) from error
        with response:
            yield cast("IO[bytes]", Body(response.raw))

    def create_volume(self, name: str, labels: dict[str, str]) -> None:
        """Make a named volume; one that exists is left as it is."""
        try:
            self.call("POST", "/volumes/create", body={"Name": name, "Labels": labels})
        except Refused as error:
            raise InfrastructureFailed("storage_failed", error.sentence) from error

    def has_volume(self, name: str) -> bool:
        """False only when the engine answers that there is none."""
        return self.find(f"/volumes/{name}") is not None

    def remove_volume(self, name: str) -> bool:
        """Remove a named volume. True when it is gone, False while a container still uses it."""
        try:
            return self.accepted("DELETE", f"/volumes/{name}", (409,), timeout=300)
        except NotThere:
            return True

    def list_volumes(self, site: str) -> list[str]:
        """Names of the volumes with the site's label."""
        found = self._listed("/volumes", {"filters": _of_site(site)})
        return [row["Name"] for row in found["Volumes"] or ()]

    def volume_sizes(self) -> dict[str, int]:
        """Bytes in each named volume, as the engine counts them: it walks them all, so ask rarely."""
        found = self._listed("/system/df", {"type": "volume"}, timeout=120)
        return {row["Name"]: (row.get("UsageData") or {}).get("Size", 0) for row in found["Volumes"] or ()}


def _of_site(site: str) -> str:
    return json.dumps({"label": [f"{LABEL_PREFIX}site={site}"]})
