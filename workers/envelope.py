"""The envelope of a function job, `result.json`: a claim, weighed against what the container's end has shown. Pure."""

from dataclasses import replace
from typing import Any

from workers.verdict import Verdict

TOLD_ERROR = 1  # the runner's exit code when its envelope tells an error
LONGEST = 2000  # characters of an error that are shown
OUTRANKS = frozenset({"succeeded", "exit_nonzero"})  # of all ends only these leave an envelope its word


def judge(verdict: Verdict, envelope: Any, fault: str) -> tuple[Verdict, Any]:
    """The verdict on a function job, and the envelope if it stands; else None, since nobody vouches for it.

    `envelope` is the parsed result.json, None with the reason in `fault` when it was not acceptable. An end for
    memory, by a signal, a deadline or a fault of ours stays what it is, whatever the file says.
    """
    if verdict.reason not in OUTRANKS:
        return verdict, None
    status = envelope.get("status") if isinstance(envelope, dict) else None
    if verdict.reason == "succeeded":
        if status == "ok" and set(envelope) == {"status", "result"}:
            return verdict, envelope
        why = fault or (
            "result.json is missing" if envelope is None else "result.json is no envelope of a result"
        )
        return Verdict("no_result", why, verdict.exit_code), None
    error = envelope.get("error") if status == "error" else None
    if verdict.exit_code == TOLD_ERROR and isinstance(error, str):
        return replace(verdict, reason="function_error", detail=error[:LONGEST]), envelope
    return verdict, None
