"""What an engine can do, found out by experiment: a real sandbox is run in each way, the strongest first.

Nothing is believed from descriptions alone: a path that looks the same to worker and engine may be two places, and a
seccomp profile that is listed may not be applied.
"""

import json
import os
import time
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO
from uuid import uuid4

from compute_site.core.errors import AttemptFailed, InfrastructureFailed
from workers.sandbox import cgroup, config, readback
from workers.sandbox.docker import EngineClient, EngineFacts, EngineUnreachable, ImageFacts
from workers.sandbox.outputs import OutputFile, OutputLimits
from workers.sandbox.spec import Spec, container_name
from workers.sandbox.workspace import Disk, Mode, Workspace
from workers.sandbox.workspaces import open_workspace

SECONDS = 60.0  # for one experiment
UID = 1_999_999_999
# Runs inside: what the kernel says of the process, and which device the outputs lie on.
PROGRAM = """
import json, os, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
try:
    local = socket.gethostbyname("localhost")
except OSError:
    local = ""
found = {"seccomp": status.get("Seccomp"), "device": os.stat("/data/outputs").st_dev, "localhost": local}
json.dump(found, open("/data/outputs/found.json", "w"))
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found. `cgroup_parent`: attempts get a cgroup of their own. `notes`: promises that are weaker here."""

    workspace_mode: Mode
    disk_mode: Disk
    cgroup_parent: bool
    localhost: bool
    notes: list[str] = field(default_factory=list)


class ProbeFailed(InfrastructureFailed):
    """The engine cannot run a sandbox in any of our ways."""

    def __init__(self, detail: str) -> None:
        super().__init__("cannot_start", detail)


def probe(
    client: EngineClient, *, state_dir: str, launcher: str, site: str, image: ImageFacts, facts: EngineFacts
) -> Probe:
    """Try the ways of getting files in and out, the strongest first, and report the first that works.

    `image` needs python3. Raises ProbeFailed (with what each way failed of) and EngineUnreachable; leaves nothing.
    """
    failures = []
    ways: list[tuple[Mode, Disk]] = [("shared", "loop"), ("shared", "watchdog"), ("archive", "watchdog")]
    for mode, disk in ways:
        for own_cgroup in (True, False) if mode == "shared" else (False,):
            trial = _Trial(client, site, state_dir, launcher, image, facts, mode, disk, own_cgroup)
            try:
                found = trial.run()
            except EngineUnreachable:
                raise
            except (AttemptFailed, OSError) as error:
                failures.append(f"{mode}/{disk}{'' if own_cgroup else ' without own cgroup'}: {error}")
                continue
            return Probe(mode, disk, own_cgroup, found, _notes(mode, disk, own_cgroup, found))
    raise ProbeFailed("; ".join(failures))


def _notes(mode: Mode, disk: Disk, own_cgroup: bool, localhost: bool) -> list[str]:
    notes = []
    if disk == "watchdog":
        notes.append(
            "Disk limits are kept by looking every half second, not by a disk of its own for each job."
        )
    if mode == "archive":
        notes.append("Files go in and out through the engine's API: slower, and logs are seen later.")
    if not own_cgroup:
        notes.append("Jobs have no cgroup of their own: peak memory and CPU time are not reported.")
    if not localhost:
        notes.append("The name localhost does not resolve inside.")
    return notes


@dataclass(slots=True)
class _Trial:
    """One sandbox run in one way."""

    client: EngineClient
    site: str
    state_dir: str
    launcher: str
    image: ImageFacts
    facts: EngineFacts
    mode: Mode
    disk: Disk
    own_cgroup: bool
    attempt: str = field(default_factory=lambda: str(uuid4()))

    def run(self) -> bool:
        """Whether `localhost` resolves inside. Raises when this way does not work."""
        name = container_name(self.site, self.attempt)
        workspace = open_workspace(
            name,
            site=self.site,
            mode=self.mode,
            disk=self.disk,
            client=self.client,
            state_dir=self.state_dir,
            launcher=self.launcher,
            image_id=self.image.id,
        )
        parent = cgroup.parent(self.site, self.attempt, self.facts.cgroup_driver) if self.own_cgroup else None
        try:
            found = self._run_in(workspace, name, parent)
        finally:
            self.client.remove(name)
            workspace.destroy()
            if parent:
                cgroup.remove(parent)
        return bool(found["localhost"])

    def _run_in(self, workspace: Workspace, name: str, parent: str | None) -> dict[str, str]:
        workspace.prepare(uid=UID, disk_mib=16, inputs={}, job_json=b"{}")
        body = config.build(
            self._spec(name), self.image, workspace.mounts(), self.facts, cgroup_parent=parent
        )
        container = self.client.create(name, body)
        workspace.after_create(self.client, container)
        if differences := readback.differences(body, self.client.inspect_raw(container) or {}):
            raise ProbeFailed(f"the engine changes the sandbox: {'; '.join(differences)[:500]}")
        self.client.start(container)
        self._wait(container)
        found = self._found(workspace)
        self._check(found, workspace, parent)
        return found

    def _spec(self, name: str) -> Spec:
        return Spec(
            site=self.site,
            job=self.attempt,
            attempt=self.attempt,
            token=self.attempt,
            nonce=self.attempt,
            name=name,
            image_id=self.image.id,
            argv=("python3", "-c", PROGRAM),
            env={},
            uid=UID,
            cores=(0,),
            memory_mib=128,
            disk_mib=16,
            max_duration=int(SECONDS),
            log_cap=65536,
        )

    def _wait(self, container: str) -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            facts = self.client.inspect(container)
            if facts is None or facts.status in ("exited", "dead"):
                return
            time.sleep(0.05)
        raise ProbeFailed("the trial did not end")

    def _found(self, workspace: Workspace) -> dict[str, str]:
        content = BytesIO()

        def sink(file: OutputFile, data: BinaryIO) -> None:
            if file.path == "found.json":
                content.write(data.read())

        workspace.outputs(OutputLimits(max_bytes=1 << 20), sink)
        if not content.getvalue():
            log = workspace.read_log("stderr", 0, 2000).decode("utf-8", "replace")
            raise ProbeFailed(f"the trial left no result: {log}")
        return dict(json.loads(content.getvalue()))

    def _check(self, found: dict[str, str], workspace: Workspace, parent: str | None) -> None:
        if found["seccomp"] != "2":
            raise ProbeFailed("processes run without a seccomp filter; enable the engine's default profile")
        if self.mode == "shared":
            seen = os.stat(f"{self.state_dir}/{self.site}/{workspace.name}/data/outputs").st_dev
            if int(found["device"]) != seen:
                raise ProbeFailed("the engine sees another disk at the same path")
        if workspace.marker() is None:
            raise ProbeFailed("the launcher left no marker")
        if parent and cgroup.usage(parent).peak_bytes is None:
            raise ProbeFailed("its own cgroup cannot be read")
