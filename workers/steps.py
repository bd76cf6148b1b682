"""Steps 3 to 7: from a reserved attempt to a running container. Each is idempotent by the attempt's name."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from compute_site.core.db import ClockTimestamp
from compute_site.core.errors import ExecutionFailed, InfrastructureFailed, StaleToken
from environments.device_init import Needs, needs_of
from jobs.models import Attempt, AttemptStatus, Job, JobStatus
from jobs.networks import was_promised
from jobs.spec import Spec as JobSpec
from jobs.transitions import move_attempt, move_job
from workers import gates, job_file
from workers.checkpoint import checkpoint
from workers.engines import Connection
from workers.models import ImageScan
from workers.sandbox import cgroup, config, readback
from workers.sandbox.docker import ImageFacts, NameTaken
from workers.sandbox.spec import Spec, final_argv, labels_of
from workers.sandbox.workspace import Workspace

CANCELLED = Job.objects.filter(pk=OuterRef("job_id"), cancel_requested_at__isnull=False)


class Cancelled(Exception):
    """A cancel was asked before the container started: the attempt ends without having run."""


class Vanished(Exception):
    """The container that we recorded is not there any more (404): whether it may still come has to be settled."""


@dataclass
class Run:
    """One claimed attempt on its way: what the steps read, and the lease that guards what they write."""

    attempt: Attempt
    job: Job
    lease: UUID
    connection: Connection
    body: dict[str, Any] | None = field(default=None, repr=False)
    scanned: ImageScan | None = None  # by this run itself, a moment ago

    @cached_property
    def spec(self) -> JobSpec:
        """The job as asked."""
        return JobSpec.from_json(self.job.spec)

    @cached_property
    def amounts(self) -> dict[str, int]:
        """What the attempt's reservation was made for, by kind of resource: cores, MiB, counts."""
        return self.job.amounts

    @cached_property
    def needs(self) -> Needs:
        """What the container gets of exactly the devices that the attempt has reserved."""
        return needs_of(self.attempt.device_uuids)

    @property
    def workspace(self) -> Workspace:
        return self.connection.workspace(self.attempt.container_name, self.attempt.image_id)

    @property
    def identity(self) -> dict[str, str]:
        """By what its containers are known."""
        return {
            "site": settings.SITE_ID,
            "job": str(self.job.public_id),
            "attempt": str(self.attempt.public_id),
            "token": str(self.attempt.token),
            "nonce": str(self.attempt.nonce),
        }

    @property
    def cgroup_parent(self) -> str | None:
        """The attempt's own cgroup, where the engine's host takes one from us."""
        facts = self.connection.facts
        if not self.connection.engine.facts.get("cgroup_parent"):
            return None
        return cgroup.parent(settings.SITE_ID, str(self.attempt.public_id), facts.cgroup_driver)


def prepare_and_start(run: Run, image: ImageFacts | None) -> None:
    """Bring the attempt from any state before `running` to running; what is done already is found and kept.

    `image` is needed while preparing; none is given when a cancel was asked by then. Raises Cancelled, Vanished, StaleToken (somebody else has the step),
    ExecutionFailed, InfrastructureFailed.
    """
    if run.attempt.status == AttemptStatus.PREPARING:
        if image is None:
            raise Cancelled
        _create(run, image)
    raw = run.connection.client.inspect_raw(run.attempt.container_id)
    if raw is None:
        raise Vanished
    if run.attempt.status == AttemptStatus.CREATED:
        _allow(run, raw)
    _start(run, raw["State"]["Status"])


def _create(run: Run, image: ImageFacts) -> None:
    """Steps 3 and 5. Before: preparing. After: created, with the container's id on the row."""
    run.attempt.image_id = image.id
    workspace = run.workspace
    workspace.prepare(
        uid=run.attempt.uid,
        disk_mib=run.amounts["disk"],
        inputs={name: text.encode() for name, text in run.spec.inputs.items()},
        job_json=job_file.document(run.job, run.attempt.number, run.spec),
        code=job_file.code(run.spec),
        resolvers=gates.resolvers(run.job),
    )
    checkpoint("workspace.after")
    gate = (
        gates.open_gate(run.connection, run.attempt, labels_of(run.identity)) if was_promised(run.job) else ""
    )
    run.body = _body(run, image, gate)
    checkpoint("create.before")
    container_id = _create_or_adopt(run, run.body)
    checkpoint("create.after")
    workspace.after_create(run.connection.client, container_id)
    facts: dict[str, Any] = {
        "container_id": container_id,
        "image_id": image.id,
        "architecture": image.architecture,
    }
    if not move_attempt(run.attempt, AttemptStatus.CREATED, lease=run.lease, step_tries=0, **facts):
        raise StaleToken("created by somebody else")
    run.attempt.status, run.attempt.container_id = AttemptStatus.CREATED, container_id
    checkpoint("created.after")


def _create_or_adopt(run: Run, body: dict[str, Any]) -> str:
    """The name is the fence: a second create finds the first, and takes it over when the nonce is ours."""
    try:
        return run.connection.client.create(run.attempt.container_name, body)
    except NameTaken as taken:
        if taken.facts is not None and taken.facts.label("nonce") == str(run.attempt.nonce):
            return taken.facts.id
        raise InfrastructureFailed("start_lost", "a stranger's container has the attempt's name") from taken


def _allow(run: Run, raw: dict[str, Any]) -> None:
    """Step 6. Before: created. After: starting, with the effective configuration on the row, its gate's too."""
    gate = gates.standing_gate(run.connection, run.attempt) if was_promised(run.job) else None
    differences = readback.differences(run.body or _rebuilt_body(run, gate["Id"] if gate else ""), raw)
    if differences:
        raise InfrastructureFailed("policy_mismatch", "; ".join(differences[:20]))
    allowed = move_attempt(
        run.attempt,
        AttemptStatus.STARTING,
        lease=run.lease,
        guard=Q(~Exists(CANCELLED)),
        effective=readback.effective(raw, hidden=run.needs.variables.keys()) | _gate_told(gate),
    )
    if not allowed:
        if Job.objects.filter(pk=run.job.pk, cancel_requested_at__isnull=False).exists():
            raise Cancelled
        raise StaleToken("the start was allowed by somebody else")
    run.attempt.status = AttemptStatus.STARTING
    checkpoint("allow.after")


def _gate_told(gate: dict[str, Any] | None) -> dict[str, Any]:
    """What the receipt says of the job's gate, if it has one."""
    return {"gate": readback.effective(gate)} if gate else {}


def _start(run: Run, seen: str) -> None:
    """Step 7. `seen` is the container's status a moment ago: Docker would run an exited one again."""
    if seen == "created":
        run.connection.client.start(run.attempt.container_id)
    checkpoint("start.after")
    with transaction.atomic():
        now, job = ClockTimestamp(), run.job.pk
        # The job's row first, as everywhere: the watcher may be recording the exit of a quick one at this moment.
        moved = move_job(job, JobStatus.RUNNING, attempt_id=run.attempt.pk, phase="", started_at=now)
        if not moved or not move_attempt(
            run.attempt, AttemptStatus.RUNNING, lease=run.lease, let_go=True, started_at=now, step_tries=0
        ):  # its exit was recorded before we came to write that it runs
            raise StaleToken("it has ended already")
    checkpoint("running.after")


def _body(run: Run, image: ImageFacts, gate: str = "") -> dict[str, Any]:
    mounts = run.workspace.mounts()
    return config.build(
        _spec(run, image, gate), image, mounts, run.connection.facts, cgroup_parent=run.cgroup_parent
    )


def _rebuilt_body(run: Run, gate: str = "") -> dict[str, Any]:
    """What an earlier worker asked for: the same rows give the same body."""
    image = run.connection.client.image(run.attempt.image_id)
    if image is None:
        raise InfrastructureFailed("start_lost", "the image was removed before the start")
    return _body(run, image, gate)


def _spec(run: Run, image: ImageFacts, gate: str) -> Spec:
    asked, attempt = run.spec, run.attempt
    entrypoint, command = asked.entrypoint, (*asked.command, *asked.args)
    if asked.function is not None:
        entrypoint, command = job_file.RUNNER_ARGV, ()
    argv = final_argv(image.entrypoint, image.command, entrypoint, command)
    if not argv:
        raise ExecutionFailed("image_refused", "neither the job nor the image says what to run")
    return Spec(
        **run.identity,
        name=attempt.container_name,
        image_id=image.id,
        argv=argv,
        env=asked.env,
        uid=attempt.uid,
        cores=tuple(attempt.cores),
        memory_mib=run.amounts["ram"],
        disk_mib=run.amounts["disk"],
        device_uuids=run.needs.by_driver,
        device_files=run.needs.files,
        groups=run.needs.groups,
        device_env=run.needs.variables,
        max_duration=run.job.max_duration,
        log_cap=settings.LOG_CAP_BYTES,
        stop_grace=settings.STOP_GRACE_SECONDS,
        gate=gate,
    )
