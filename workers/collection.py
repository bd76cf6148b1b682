"""Steps 10 and 11: read what the job left, store it, decide how it ended, settle."""

import logging
from datetime import datetime
from typing import Any, BinaryIO

from compute_site.core.errors import InfrastructureFailed, StaleToken
from compute_site.core.paths import without_any
from jobs import results
from jobs.outcome import Outcome, StoredFile
from jobs.result_json import InvalidResult, parse_result
from jobs.settlement import settle
from jobs.spec_function import RESULT
from workers import envelope
from workers.checkpoint import checkpoint
from workers.sandbox.outputs import OutputFile, OutputLimits, Outputs
from workers.sandbox.workspace import STREAMS
from workers.shipping import ship_log
from workers.steps import Run
from workers.verdict import ExitFacts, Verdict, decide, memory_kills

log = logging.getLogger(__name__)

RESULT_BYTES = 2**20
MIB = 2**20


def collect_and_settle(run: Run) -> None:
    """Before: collecting, lease held. After: attempt settled (or failed) and the job final (or queued again).

    Raises InfrastructureFailed (storage_failed) when the results cannot be stored; then nothing is settled.
    """
    checkpoint("collect.before")
    facts = ExitFacts(**run.attempt.exit_facts)
    verdict = decide(facts, run.attempt.stop_reason)
    for stream in STREAMS:
        ship_log(run.attempt, run.workspace, stream)
    outcome = _outcome(run, facts, verdict)
    checkpoint("collect.after")
    if not settle(run.attempt, run.lease, outcome):
        raise StaleToken("settled by somebody else")
    checkpoint("settle.after")
    log.info("job %s: attempt %d ended, %s %s", run.job, run.attempt.number, outcome.reason, outcome.detail)


def _outcome(run: Run, facts: ExitFacts, verdict: Verdict) -> Outcome:
    outputs, content = _read_outputs(run)
    files = [StoredFile(file.path, file.size, file.sha256) for file in outputs.files]
    refused = [{"path": item.path, "reason": item.reason} for item in outputs.refused]
    result, result_fault = _result(content)
    if any(file.path == RESULT and file.size > RESULT_BYTES for file in outputs.files):
        result_fault = f"larger than {RESULT_BYTES} bytes: it is kept as a file, and is no result"
    if result_fault:
        refused.append({"path": RESULT, "reason": result_fault})
    if run.spec.function is not None:
        verdict, result = envelope.judge(verdict, result, result_fault)
    verdict = _judged_outputs(run, verdict, outputs)
    refused += _counted(outputs)
    manifest, digest = results.build_manifest(verdict.exit_code, files, refused)
    return Outcome(
        reason=verdict.reason,
        detail=verdict.detail,
        exit_code=verdict.exit_code,
        run_seconds=_run_seconds(facts),
        usage=_usage(facts),
        result=result,
        manifest=manifest,
        manifest_sha256=digest,
        refused=refused,
        artifacts=files,
    )


def _read_outputs(run: Run) -> tuple[Outputs, bytes | None]:
    """Store every good output; returns those that the job declares (or all), and the content of result.json.

    Each content comes once, under whichever of its names is met first: so it is stored whatever that name is, and
    what no artifact names is swept later.
    """

    def sink(file: OutputFile, content: BinaryIO) -> None:
        results.store_output(content, file.sha256, file.size)

    try:
        outputs = run.workspace.outputs(OutputLimits(max_bytes=run.amounts["disk"] * MIB), sink)
        result = next(
            (file for file in outputs.files if file.path == RESULT and file.size <= RESULT_BYTES), None
        )
        content = results.read_content(result.sha256) if result else None
    except OSError as error:
        raise InfrastructureFailed("storage_failed", str(error)) from error
    outputs.files = [file for file in outputs.files if run.spec.declares(file.path)]
    return outputs, content


def _judged_outputs(run: Run, verdict: Verdict, outputs: Outputs) -> Verdict:
    """A program that ended well still fails when what it declared is not there, or was more than may be taken."""
    if verdict.reason != "succeeded":
        return verdict
    if outputs.stopped:
        return Verdict(
            "output_too_large", f"{outputs.stopped}: {len(outputs.files)} files were taken", verdict.exit_code
        )
    declared = run.spec.declared
    if declared is None:
        if outputs.refused_counts and not outputs.files:
            return Verdict("output_refused", _reasons(outputs), verdict.exit_code)
        return verdict
    missing = without_any(declared, (file.path for file in outputs.files))
    if not missing:
        return verdict
    refused = {item.path for item in outputs.refused}
    reason = "output_refused" if refused & set(missing) else "output_missing"
    return Verdict(reason, ", ".join(missing)[:1000], verdict.exit_code)


def _counted(outputs: Outputs) -> list[dict[str, str]]:
    """One line for the refusals beyond those listed, so that no entry goes without a word."""
    more = sum(outputs.refused_counts.values()) - len(outputs.refused)
    lines = [{"path": "…", "reason": f"and {more} more: {_reasons(outputs)}"}] if more else []
    return lines + ([{"path": "…", "reason": f"stopped: {outputs.stopped}"}] if outputs.stopped else [])


def _reasons(outputs: Outputs) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in outputs.refused_counts.most_common())


def _result(data: bytes | None) -> tuple[Any, str]:
    """The parsed result.json and an empty text, or None and why it was not accepted."""
    if data is None:
        return None, ""
    try:
        return parse_result(data), ""
    except InvalidResult as error:
        return None, str(error)


def _run_seconds(facts: ExitFacts) -> float | None:
    """Docker's span, or the launcher's where that is longer: of a very short run Docker may note the end first."""
    spans = []
    if facts.started_at and facts.finished_at:
        started, finished = (datetime.fromisoformat(text) for text in (facts.started_at, facts.finished_at))
        spans.append((finished - started).total_seconds())
    if facts.marker:
        spans.append((facts.marker["ended_ns"] - facts.marker["started_ns"]) / 1e9)
    return max(0.0, *spans) if spans else None


def _usage(facts: ExitFacts) -> dict[str, Any]:
    marker = facts.marker or {}
    used = {
        "cpu_seconds": facts.cpu_ns / 1e9 if facts.cpu_ns is not None else None,
        "peak_memory_bytes": facts.peak_bytes,
        "memory_kills": memory_kills(facts),
        "stdout_cut": marker.get("stdout_cut"),
        "stderr_cut": marker.get("stderr_cut"),
    }
    return {name: value for name, value in used.items() if value is not None}
