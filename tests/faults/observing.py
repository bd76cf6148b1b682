"""What the engine itself says while a test runs: which containers started, and on which cores."""

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from django.conf import settings

from workers.sandbox.docker import EngineClient
from workers.sandbox.spec import LABEL_PREFIX


class Starts:
    """Counts container starts of the site (or of an agent: `site`), by job (or unit), from the engine's own events."""

    def __init__(self, endpoint: str, site: str = "") -> None:
        self._client = EngineClient(endpoint)
        self._stream = self._client.events(site or settings.SITE_ID)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._by_job: dict[str, Counter[str]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()
        self._thread.join()
        self._client.close()

    def of(self, job_id: object) -> list[int]:
        """How often each container of the job was started: [1] for a job that ran once in one container."""
        return sorted(self._by_job.get(str(job_id), Counter()).values())

    def _read(self) -> None:
        for event in self._stream:
            if event.kind == "start" and not event.label("gate"):
                self._by_job.setdefault(event.label("job"), Counter())[event.container_id] += 1


class Cores:
    """Looks at all running containers of the site again and again: the largest number at once, and shared cores."""

    def __init__(self, endpoint: str, every: float = 0.1) -> None:
        self._client = EngineClient(endpoint)
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most = 0
        self.looks = 0
        self.shared: list[list[tuple[str, str]]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()

    def _look(self) -> None:
        while not self._over.wait(self._every):
            running = [
                facts for facts in self._client.list_site(settings.SITE_ID) if facts.status == "running"
            ]
            raws = [raw for facts in running if (raw := self._client.inspect_raw(facts.id))]
            pinned = [
                (raw["Config"]["Labels"][f"{LABEL_PREFIX}job"], raw["HostConfig"]["CpusetCpus"])
                for raw in raws
                if raw["State"]["Running"]
            ]
            self.looks += 1
            self.most = max(self.most, len(pinned))
            cores = [cpuset for _, cpuset in pinned]
            if len(set(cores)) != len(cores):
                self.shared.append(pinned)
