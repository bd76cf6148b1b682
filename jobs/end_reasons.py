"""The one table from end reason to everything: final status, retry, bill, blame, words for the client."""

from dataclasses import dataclass
from typing import Literal

Blame = Literal["nobody", "job", "client", "site"]


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why an attempt or a job ended.

    `status`: the job's final status. `retryable`: the job goes back to the queue while attempts last (always ours).
    `billable`: run time is charged. `blame`: whose fault. `message`: what the client reads.
    """

    status: Literal["succeeded", "failed", "cancelled", "expired"]
    retryable: bool
    billable: bool
    blame: Blame
    message: str


def _job(message: str) -> EndReason:
    return EndReason("failed", False, True, "job", message)


def _asked(message: str) -> EndReason:
    """The job never ran because of what it asked for: its own fault, and no bill."""
    return EndReason("failed", False, False, "client", message)


def _ours(message: str, *, retryable: bool = True) -> EndReason:
    return EndReason("failed", retryable, False, "site", message)


END_REASONS: dict[str, EndReason] = {
    "succeeded": EndReason("succeeded", False, True, "nobody", "The program ended with exit code 0."),
    "exit_nonzero": _job("The program ended with an exit code other than 0."),
    "function_error": _job("The function raised an error, or ended its process without returning."),
    "out_of_memory": _job("The main process needed more memory than reserved and was killed."),
    "killed": _job("The main process was killed by a signal, not for memory."),
    "time_limit": _job("The job ran longer than its max_duration and was stopped."),
    "disk_limit": _job("The job wrote more than its reserved disk and was stopped."),
    "output_refused": _job("No output could be taken; each refusal is listed."),
    "output_too_large": _job("The outputs exceed the limits on bytes or files."),
    "output_missing": _job("A declared output is missing."),
    "no_result": _job("result.json is missing or not acceptable."),
    "image_not_found": _asked("The image does not exist, or the site has no access to it."),
    "image_unauthorized": _asked("The registry refused access to the image."),
    "image_refused": _asked(
        "The image may not run here (wrong architecture, nothing to run, or findings of the scanner)."
    ),
    "command_not_found": _asked("The program to run was not found in the image, or is not executable."),
    "input_unavailable": _asked("An input could not be fetched."),
    "input_mismatch": _asked("An input differs from its declared sha256."),
    "cancelled": EndReason("cancelled", False, True, "client", "Cancelled by a member of the account."),
    "cancelled_by_operator": EndReason("cancelled", False, False, "site", "Cancelled by the operator."),
    "expired_in_queue": EndReason(
        "expired", False, False, "nobody", "It waited in the queue longer than allowed."
    ),
    "registry_unavailable": _ours("The image registry did not answer."),
    "pull_timeout": _ours("Pulling the image took too long."),
    "cannot_start": _ours("The container could not be started."),
    "policy_mismatch": _ours("The sandbox read back from the engine differs from the policy."),
    "engine_lost": _ours("The engine or its host went away while the job ran."),
    "start_lost": _ours("A start could not be confirmed; the attempt was given up."),
    "worker_lost_too_often": _ours("Its worker was lost too often.", retryable=False),
    "storage_failed": _ours("Results could not be stored."),
    "disk_full": _ours("The engine's disk is full."),
    "internal_error": _ours("A fault of the site."),
    "fleet_disputed": _ours(
        "Remote workers came to different results: none of them counts.", retryable=False
    ),
    "fleet_failed": _ours("No remote worker came to a result that counts.", retryable=False),
}
