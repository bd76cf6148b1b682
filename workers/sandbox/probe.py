"""What an engine can do for us, found by running one small job under the full profile in every way until one works.

Nothing that the engine says of itself is believed here: the job reports what it sees, and the report has to come back.
"""

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from compute_site.core.errors import AttemptFailed, SiteError
from workers.sandbox import cgroup, config, readback
from workers.sandbox.connection import EngineUnreachable
from workers.sandbox.docker import EngineClient, EngineFacts, ImageFacts
from workers.sandbox.outputs import OutputFile, OutputLimits
from workers.sandbox.spec import Spec
from workers.sandbox.volume_shared import SharedWorkspace
from workers.sandbox.workspace import Disk, Mode, Workspace
from workers.sandbox.workspaces import open_workspace

UID = 1_999_999_999  # no job's, and nobody's on the host
FILTERS = 2  # the engine's seccomp list and the launcher's; with the launcher's alone the engine's is off
DISK_MIB = 16
DISKS: tuple[Disk, ...] = ("loop", "watchdog")
DEADLINE = 60.0  # seconds for one container
PROBE_LIFE = 120.0  # seconds: no trial takes so long
PROBE_NAME = re.compile(r"cs-[a-z0-9]+-probe-([0-9a-f]{8})-")
REPORT = "probe.json"
PROGRAM = """
import json, os, socket
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
try:
    localhost = bool(socket.getaddrinfo("localhost", 1))
except OSError:
    localhost = False
report = {
    "nonce": open("/data/inputs/nonce").read(),
    "device": os.stat("/data").st_dev,
    "filters": int(status.get("Seccomp_filters", 2 if int(status["Seccomp"]) == 2 else 0)),
    "localhost": localhost,
}
with open("/data/outputs/probe.json", "w") as file:
    json.dump(report, file)
"""


class ProbeFailed(SiteError):
    """The engine cannot keep the sandbox's promises; the message says why, way by way."""


class NoReport(SiteError):
    """One way of running the job did not work."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How jobs are to run on this engine. `notes` say in words what it cannot do, for the admin."""

    workspace_mode: Mode
    disk_mode: Disk
    seccomp: bool
    localhost_resolves: bool
    cgroup_parent: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """One combination to try, best first."""

    mode: Mode
    disk: Disk
    cgroup_parent: bool

    def __str__(self) -> str:
        return f"{self.mode} workspace, {self.disk} disk" + (", own cgroup" if self.cgroup_parent else "")


def probe(
    client: EngineClient, *, state_dir: str, launcher: str, site: str, image: ImageFacts, facts: EngineFacts
) -> Probe:
    """Tries the ways in order. `image` has Python in it. Leaves nothing on the engine (but the launcher's volume).

    Raises ProbeFailed when no way works or the default seccomp profile is not active, EngineUnreachable.
    """
    failures: list[str] = []
    for way in ways(client.endpoint):
        name = probe_name(site)
        workspace = open_workspace(
            name,
            site=site,
            mode=way.mode,
            disk=way.disk,
            client=client,
            state_dir=state_dir,
            launcher=launcher,
            image_id=image.id,
        )
        try:
            report = Trial(client, workspace, smallest(site, name, image), image, facts).run(way)
        except EngineUnreachable:
            raise
        except (NoReport, AttemptFailed) as failure:
            failures.append(f"{way}: {failure}")
            continue
        if report["filters"] < FILTERS:
            raise ProbeFailed("containers run without the engine's default seccomp profile")
        notes = (*_notes(way, report["localhost"]), *failures)
        return Probe(way.mode, way.disk, True, report["localhost"], way.cgroup_parent, notes)
    raise ProbeFailed("no way of running a job works. " + " | ".join(failures))


def probe_name(site: str) -> str:
    """The name of a trial's container and workspace. It tells when it began: what a crash left is swept by that."""
    return f"cs-{site}-probe-{int(time.time()):08x}-{uuid.uuid4().hex[:8]}"


def is_probe(name: str, site: str) -> bool:
    """Whether it is of a trial: no attempt's, and swept when it is old."""
    return PROBE_NAME.match(name) is not None and name.startswith(f"cs-{site}-")


def is_old_probe(name: str, site: str) -> bool:
    """Whether it is of a trial that can only have been broken off."""
    found = PROBE_NAME.match(name) if name.startswith(f"cs-{site}-") else None
    return found is not None and int(found[1], 16) + PROBE_LIFE < time.time()


def ways(endpoint: str) -> Iterator[Way]:
    """Root on (what seems to be) the engine's host tries everything; anybody else has only the API."""
    if os.geteuid() == 0 and endpoint.startswith("unix:"):
        own_cgroup = [True, False] if cgroup.within_reach() else [False]
        for disk in DISKS:
            for own in own_cgroup:
                yield Way("shared", disk, own)
    yield Way("archive", "watchdog", False)


class Trial:
    """One container from workspace to report, and no trace of it afterwards."""

    def __init__(
        self, client: EngineClient, workspace: Workspace, spec: Spec, image: ImageFacts, facts: EngineFacts
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._spec = spec
        self._image = image
        self._facts = facts

    def run(self, way: Way, resolvers: Sequence[str] = ()) -> dict[str, Any]:
        """The job's report, checked against what this machine sees. Raises NoReport, AttemptFailed."""
        own = cgroup.parent(self._spec.site, self._spec.attempt, self._facts.cgroup_driver)
        try:
            self._workspace.prepare(
                uid=self._spec.uid,
                disk_mib=DISK_MIB,
                inputs={"nonce": self._spec.nonce.encode()},
                job_json=b"{}",
                resolvers=resolvers,
            )
            self._start(own if way.cgroup_parent else None)
            report = self._report()
            if way.cgroup_parent and not cgroup.usage(own).cpu_ns:
                raise NoReport("the cgroup that was asked for is not visible from here")
            return report
        finally:
            self._client.remove(self._spec.name)
            self._workspace.destroy()
            if way.cgroup_parent:
                cgroup.remove(own)

    def _start(self, cgroup_parent: str | None) -> None:
        mounts = self._workspace.mounts()
        body = config.build(self._spec, self._image, mounts, self._facts, cgroup_parent=cgroup_parent)
        container = self._client.create(self._spec.name, body)
        self._workspace.after_create(self._client, container)
        made = self._client.inspect_raw(container)
        different = readback.differences(body, made) if made else ["the container vanished"]
        if different:
            raise NoReport(f"the engine changes the sandbox: {'; '.join(different)}")
        self._client.start(container)

    def _report(self) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE
        while (found := self._client.inspect(self._spec.name)) is None or found.status != "exited":
            if found is None or time.monotonic() > end:
                raise NoReport("the container did not end")
            time.sleep(0.05)
        content: list[bytes] = []

        def keep(file: OutputFile, stream: BinaryIO) -> None:
            if file.path == REPORT:
                content.append(stream.read())

        self._workspace.outputs(OutputLimits(max_bytes=1 << 16, max_entries=10), keep)
        if not content:
            text = self._workspace.read_log("stderr", 0, 2000).decode(errors="replace").strip()
            raise NoReport(f"nothing came back (exit code {found.exit_code}): {text or 'no output'}")
        return self._checked(json.loads(content[0]))

    def _checked(self, report: dict[str, Any]) -> dict[str, Any]:
        if report["nonce"] != self._spec.nonce:
            raise NoReport("the job saw another input")
        if isinstance(self._workspace, SharedWorkspace) and report["device"] != self._workspace.device():
            raise NoReport(
                "the engine sees another disk at the same path: its mounts are not shared with ours"
            )
        if self._workspace.marker() is None:
            raise NoReport("the launcher left no marker")
        return report


def smallest(
    site: str, name: str, image: ImageFacts, argv: tuple[str, ...] = ("python3", "-I", "-c", PROGRAM)
) -> Spec:
    """The smallest job, of nobody, that runs `argv`."""
    return Spec(
        site=site,
        job=str(uuid.uuid4()),
        attempt=str(uuid.uuid4()),
        token="0",
        nonce=uuid.uuid4().hex,
        name=name,
        image_id=image.id,
        argv=argv,
        env={},
        uid=UID,
        cores=(0,),
        memory_mib=128,
        disk_mib=DISK_MIB,
        max_duration=30,
        log_cap=1 << 16,
        stop_grace=1,
    )


def _notes(way: Way, localhost: bool) -> Iterator[str]:
    if way.mode == "archive":
        yield "Files go through the engine's API: slower, and inputs and outputs are copied."
    if way.disk == "watchdog":
        yield "Disk limits are only watched: a job can exceed its own for some seconds before it is stopped."
    if not way.cgroup_parent:
        yield "No cgroup of our own: peak memory and CPU time of a job are known only from its launcher."
    if not localhost:
        yield "`localhost` does not resolve in jobs; 127.0.0.1 works."
