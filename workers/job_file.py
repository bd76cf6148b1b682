"""What a job finds beside its inputs: `/data/job.json`, and the code of a function job."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from jobs.models import Job
from jobs.networks import was_promised
from jobs.spec import Spec
from jobs.spec_function import bundle_of
from workers.sandbox.outputs import OutputLimits
from workers.sandbox.spec import DATA_PATH

VERSION = 1
RUNNER = Path(settings.BASE_DIR) / "docker" / "sandbox" / "runner.py"
CODE_PATH = f"{DATA_PATH}/code"
# -I: nothing from the environment or the working folder gets into the runner; -B: the files are read-only anyway.
RUNNER_ARGV = ("python3", "-I", "-B", f"{CODE_PATH}/runner.py")


def document(job: Job, attempt: int, spec: Spec, *, shown_as: UUID | None = None) -> bytes:
    """`/data/job.json`, version 1: job, role, function and args (null without a function), inputs, outputs, resources.

    Sizes in bytes, `max_duration` in seconds, resources as reserved. `outputs.declared` null: everything is taken.
    `shown_as`: told in place of the job's own id; the term `shown_attempt`: in place of the attempt's number (an audit
    that is tried again must find what the replicas found).
    """
    function = spec.function or {}
    return json.dumps(
        {
            "version": VERSION,
            "job": str(shown_as or job.public_id),
            "attempt": job.terms.get("shown_attempt", attempt),
            "role": function.get("role"),
            "function": function.get("entry"),
            "args": function.get("args"),
            "inputs": [_input(name, text.encode()) for name, text in sorted(spec.inputs.items())],
            "outputs": _outputs(spec, job.amounts["disk"] * 2**20),
            "network": was_promised(job),
            "resources": job.terms["resources"],
            "max_duration": job.max_duration,
        },
        sort_keys=True,
    ).encode()


def code(spec: Spec) -> Mapping[str, bytes]:
    """The files of `/data/code`, root's and read-only: the runner and the bundle, as it came; none without a function.

    The runner comes with each start, not with the image: it is always the one that this worker knows.
    """
    if spec.function is None:
        return {}
    return {"runner.py": RUNNER.read_bytes(), "bundle": bundle_of(spec.function)}


def _input(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _outputs(spec: Spec, max_bytes: int) -> dict[str, Any]:
    limits = OutputLimits(max_bytes=max_bytes)
    return {"declared": spec.declared, "max_bytes": limits.max_bytes, "max_files": limits.max_files}
