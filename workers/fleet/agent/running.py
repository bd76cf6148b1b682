"""One assignment in a container: the same sandbox, launcher and judgement as on the site's own engines."""

import base64
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

from compute_site.core.errors import AttemptFailed, ExecutionFailed, InfrastructureFailed
from compute_site.core.paths import is_below
from workers.fleet import manifest
from workers.fleet.agent.config import Config
from workers.sandbox import config as sandbox
from workers.sandbox import readback
from workers.sandbox.docker import ContainerFacts, EngineClient, EngineFacts, ImageFacts
from workers.sandbox.marker import Marker
from workers.sandbox.outputs import OutputFile, OutputLimits, Outputs
from workers.sandbox.spec import Spec, container_name, final_argv
from workers.sandbox.workspace import STREAMS, Stream, Workspace
from workers.sandbox.workspaces import open_workspace, traces
from workers.verdict import Verdict, decide, exit_facts

MIB = 2**20
LOOK_SECONDS = 0.3
DISK_SECONDS = 5.0
LOG_TAIL = 8192  # bytes
PULL_SECONDS = 900.0
OWN_RESULT = ("succeeded", "exit_nonzero")
Progress = Callable[[str], bool]  # takes the end of the log; False: nobody wants the result any more


class NotWanted(Exception):
    """The assignment is not ours any more: the container was ended, there is nothing to report."""


@dataclass(frozen=True)
class Finished:
    """How it ended. A failure has a reason and nothing else; contents are in base64, by sha256.

    `log`: by stream the beginning of it (`data`, in base64) and how many bytes were `cut` from its end.
    """

    reason: str = ""
    detail: str = ""
    exit_code: int = 0
    files: list[tuple[str, int, str]] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)
    run_seconds: float | None = None
    log: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The form kept on disk."""
        return asdict(self)


class Sandbox:
    """This agent's engine. Safe to share between threads; connects at the first use."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.client = EngineClient(config.engine)
        self.facts: EngineFacts = self.client.facts()

    def sweep(self) -> None:
        """Remove what an earlier process of this agent left on the engine."""
        for found in self.client.list_site(self.config.name):
            self.client.remove(found.id)
        left = traces(
            site=self.config.name, mode="archive", client=self.client, state_dir=str(self.config.state_dir)
        )
        for name in {trace.name for trace in left}:
            with suppress(InfrastructureFailed):
                self._workspace(name).destroy()

    def run(self, assignment: Mapping[str, Any], slot: int, progress: Progress) -> Finished:
        """Run it to its end and remove everything. Raises NotWanted; every fault becomes a Finished with its reason."""
        name = container_name(self.config.name, str(uuid.uuid4()))
        try:
            return self._run(name, assignment, slot, progress)
        except AttemptFailed as error:
            return Finished(reason=error.reason, detail=error.detail)
        finally:
            with suppress(InfrastructureFailed):
                self.client.remove(name)
                self._workspace(name).destroy()

    def _run(self, name: str, assignment: Mapping[str, Any], slot: int, progress: Progress) -> Finished:
        work = assignment["work"]
        image = self._image(work["image"])
        spec = self._spec(name, assignment, image, slot)
        workspace = self._workspace(name, image.id)
        inputs = {key: text.encode() for key, text in work["inputs"].items()}
        job_json = work["job_json"].encode()
        workspace.prepare(uid=spec.uid, disk_mib=spec.disk_mib, inputs=inputs, job_json=job_json)
        body = sandbox.build(spec, image, workspace.mounts(), self.facts, cgroup_parent=None)
        container = self.client.create(name, body)
        workspace.after_create(self.client, container)
        made = self.client.inspect_raw(container)
        if made is None or readback.differences(body, made):
            raise InfrastructureFailed("policy_mismatch", "the engine made something else of it")
        self.client.start(container)
        stop_reason = self._wait(container, workspace, spec, assignment["lease"], progress)
        return self._collect(container, workspace, spec, work, stop_reason)

    def _image(self, wanted: str | None) -> ImageFacts:
        reference = wanted or self.config.image
        return self.client.image(reference) or self.client.pull(reference, time.monotonic() + PULL_SECONDS)

    def _spec(self, name: str, assignment: Mapping[str, Any], image: ImageFacts, slot: int) -> Spec:
        work, amounts = assignment["work"], assignment["work"]["amounts"]
        argv = final_argv(image.entrypoint, image.command, work["entrypoint"], work["command"])
        if not argv:
            raise ExecutionFailed("image_refused", "neither the job nor the image says what to run")
        own = len(self.config.cores) // self.config.slots
        cores = self.config.cores[slot * own : (slot + 1) * own][: amounts["cpu"]]
        if len(cores) < amounts["cpu"]:
            raise InfrastructureFailed("cannot_start", f"{amounts['cpu']} cores are asked, a slot has {own}")
        return Spec(
            site=self.config.name,
            job=assignment["unit"],
            attempt=assignment["id"],
            token=assignment["token"],
            nonce=uuid.uuid4().hex,
            name=name,
            image_id=image.id,
            argv=argv,
            env=work["env"],
            uid=self.config.first_uid + slot,
            cores=tuple(cores),
            memory_mib=amounts["ram"],
            disk_mib=amounts["disk"],
            max_duration=work["max_duration"],
            log_cap=self.config.log_cap,
        )

    def _workspace(self, name: str, image_id: str = "") -> Workspace:
        return open_workspace(
            name,
            site=self.config.name,
            mode="archive",
            disk="watchdog",
            client=self.client,
            state_dir=str(self.config.state_dir),
            launcher=self.config.launcher,
            image_id=image_id,
        )

    def _wait(
        self, container: str, workspace: Workspace, spec: Spec, lease: float, progress: Progress
    ) -> str:
        """Until it has ended; returns why we ended it, or an empty text. Raises NotWanted."""
        began = said = looked = time.monotonic()
        stop_reason, stopped, killed = "", began, False
        while (facts := self.client.inspect(container)) is not None and facts.status == "running":
            now = time.monotonic()
            if now - said > lease / 3:
                said = now
                tail = workspace.read_log("stdout", 0, spec.log_cap)[-LOG_TAIL:].decode(errors="replace")
                if not progress(tail.replace("\0", "")):
                    self.client.signal(container, "KILL")
                    raise NotWanted
            if now - looked > DISK_SECONDS and not stop_reason:
                looked = now
                if self._used_bytes(workspace) > spec.disk_mib * MIB:
                    stop_reason, stopped = "disk_limit", now
                    self.client.signal(container, "TERM")
            if now - began > spec.max_duration and not stop_reason:
                stop_reason, stopped = "time_limit", now
                self.client.signal(container, "TERM")
            if stop_reason and not killed and now - stopped > spec.stop_grace:
                killed = self.client.signal(container, "KILL")
            time.sleep(LOOK_SECONDS)
        return stop_reason

    def _used_bytes(self, workspace: Workspace) -> int:
        """0 when the engine cannot count now (it counts for one asker at a time): it is asked again."""
        try:
            return workspace.used_bytes()
        except InfrastructureFailed:
            return 0

    def _collect(
        self, container: str, workspace: Workspace, spec: Spec, work: Mapping[str, Any], stop_reason: str
    ) -> Finished:
        facts = self.client.inspect(container)
        if facts is None:
            raise InfrastructureFailed("engine_lost", "the container vanished")
        marker = workspace.marker()
        verdict = _verdict(facts, marker, spec, stop_reason)
        if verdict.reason not in OWN_RESULT or verdict.exit_code is None:
            return Finished(reason=verdict.reason, detail=verdict.detail)
        contents: dict[str, bytes] = {}

        def sink(file: OutputFile, content: BinaryIO) -> None:
            contents[file.sha256] = content.read()

        limits = OutputLimits(max_bytes=manifest.MAX_BYTES, max_files=manifest.MAX_FILES)
        outputs = workspace.outputs(limits, sink)
        if outputs.stopped or outputs.refused_counts:
            return Finished(reason="output_refused", detail=_refusals(outputs))
        declared = work["outputs"]
        taken = [file for file in outputs.files if declared is None or is_below(file.path, declared)]
        files = [(file.path, file.size, file.sha256) for file in taken]
        kept = {sha256: base64.b64encode(contents[sha256]).decode() for _, _, sha256 in files}
        return Finished(
            exit_code=verdict.exit_code,
            files=files,
            contents=kept,
            run_seconds=_seconds(facts),
            log={stream: _log(workspace, stream, marker, spec.log_cap) for stream in STREAMS},
        )


def _verdict(facts: ContainerFacts, marker: Marker | None, spec: Spec, stop_reason: str) -> Verdict:
    """As on the site's own engines, by what can be known here."""
    found = exit_facts(
        facts,
        marker,
        memory_limit=spec.memory_mib * MIB,
        usage={},
        oom_event=False,
        boot_id="",
        connection_lost=False,
    )
    return decide(found, stop_reason)


def _log(workspace: Workspace, stream: Stream, marker: Marker | None, cap: int) -> dict[str, Any]:
    """The beginning of a stream, and what of it the launcher or we have cut."""
    data = workspace.read_log(stream, 0, cap)
    cut = 0 if marker is None else marker.stdout_cut if stream == "stdout" else marker.stderr_cut
    kept = data[: manifest.LOG_BYTES]
    return {"data": base64.b64encode(kept).decode(), "cut": cut + len(data) - len(kept)}


def _refusals(outputs: Outputs) -> str:
    reasons = [f"{count} {reason}" for reason, count in outputs.refused_counts.most_common()]
    return ", ".join([*reasons, outputs.stopped] if outputs.stopped else reasons)


def _seconds(facts: ContainerFacts) -> float | None:
    started: datetime | None = facts.started_at
    if started is None or facts.finished_at is None:
        return None
    return max(0.0, (facts.finished_at - started).total_seconds())
