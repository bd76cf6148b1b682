"""The few calls to Docker's HTTP interface that making an image needs, without the Docker SDK."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from .ping import connection
from .progress import Failed


class EngineApi:
    """One engine at a unix:// or tcp:// address; every call opens a connection of its own."""

    def __init__(self, docker_host: str, seconds: float = 300) -> None:
        if os.environ.get("DOCKER_TLS_VERIFY") and docker_host.startswith("tcp://"):
            raise Failed("an image is not made over TLS: make it on the engine's own host.")
        self._docker_host = docker_host
        self._seconds = seconds

    def get(self, path: str) -> Any:
        """The decoded answer, or None when the engine says 404. Raises `Failed` for everything else."""
        status, answer = self._call("GET", path, None, {})
        return None if status == 404 else self._decoded(path, status, answer)

    def post(self, path: str, body: Any = None, **query: str) -> Any:
        """Send `body` as JSON; the decoded answer, None when it is empty. Raises `Failed`."""
        address = f"{path}?{urlencode(query)}" if query else path
        status, answer = self._call(
            "POST", address, json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
        )
        return self._decoded(path, status, answer)

    def delete(self, path: str) -> None:
        """Remove it by force; what is not there is fine. Raises `Failed`."""
        status, answer = self._call("DELETE", f"{path}?force=1&v=1", None, {})
        if status != 404:
            self._decoded(path, status, answer)

    def image(self, tag: str) -> dict[str, Any] | None:
        """What the engine knows of an image; None when it has none of that name."""
        found: dict[str, Any] | None = self.get(f"/images/{quote(tag, safe='/:@')}/json")
        return found

    def load(self, archive: Path) -> None:
        """Load the images of a `docker save` archive. Raises `Failed`."""
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(archive.stat().st_size)}
        with archive.open("rb") as body:
            status, answer = self._call("POST", "/images/load?quiet=1", body, headers)
        # The engine answers 200 before it has looked: the error stands in the stream behind it.
        if status != 200 or b"errorDetail" in answer:
            raise Failed(f"the engine did not load the image: {answer.decode(errors='replace')[-300:]}")

    def put_archive(self, container: str, folder: str, archive: bytes) -> None:
        """Unpack a tar into a container's folder. Raises `Failed`."""
        path = f"/containers/{container}/archive?{urlencode({'path': folder})}"
        status, answer = self._call("PUT", path, archive, {"Content-Type": "application/x-tar"})
        self._decoded(path, status, answer)

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, bytes]:
        asked = connection(self._docker_host, self._seconds)
        try:
            asked.request(method, path, body, {"Host": "docker", **headers})
            answer = asked.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"the engine at {self._docker_host} did not answer: {error}") from error
        finally:
            asked.close()

    def _decoded(self, path: str, status: int, answer: bytes) -> Any:
        if status >= 400:
            raise Failed(f"the engine refused {path}: {answer.decode(errors='replace')[:300]}")
        return json.loads(answer) if answer.strip() else None
