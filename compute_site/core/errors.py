"""The errors that travel between layers, and what each means to whoever catches it.

`django.core.exceptions.ValidationError` is the one for wrong values (400, with fields). The others are here.
"""

from collections.abc import Sequence


class SiteError(Exception):
    """Base of all our own errors."""


class Rejected(SiteError):
    """A well-formed request that the site refuses; nothing was written. `code` is stable, `field` may be empty.

    `details`: what is to be told of the field one by one, in place of the message.
    """

    status = 403
    code = "rejected"

    def __init__(self, message: str, *, field: str = "", code: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = details
        self.field = field
        self.code = code or self.code


class NotAdmitted(Rejected):
    """The environment does not take this job (closed, draining, not for this account)."""

    code = "not_admitted"


class NotPermitted(Rejected):
    """Whoever asks may not change these kinds of rows; the message names the permissions."""

    code = "not_permitted"


class NothingMatches(Rejected):
    """No environment that the caller may see takes this job by its selector."""

    status = 422
    code = "no_environment_matches"


class QuotaExceeded(Rejected):
    """The account already has as many jobs as it may."""

    status = 429
    code = "quota_exceeded"


class InsufficientFunds(Rejected):
    """The account's free balance does not cover the hold."""

    status = 402
    code = "insufficient_funds"


class IdempotencyConflict(Rejected):
    """The idempotency key was used before with another body."""

    status = 409
    code = "idempotency_conflict"


class VersionChanged(Rejected):
    """What the client saw, and depends on, is something else by now."""

    status = 412
    code = "version_changed"


class TransitionRefused(SiteError):
    """A guarded update found the row in another state: somebody was first. Nothing was changed."""


class StaleToken(TransitionRefused):
    """The caller's fencing token or lease is no longer the current one: its work is void."""


class CapacityUnavailable(SiteError):
    """A reservation does not fit now; the job stays queued. `resource` names what is short, `of_host` that others of the
    same host have it, while the environment's own total would do."""

    def __init__(self, message: str, *, resource: str = "") -> None:
        super().__init__(message)
        self.resource = resource
        self.of_host = False


class AttemptFailed(SiteError):
    """Base of the two ways an attempt fails. `reason` is a name of the end-reason table, `detail` is bounded text."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail[:4000]


class ExecutionFailed(AttemptFailed):
    """The job's own fault: shown to the client, never retried."""


class InfrastructureFailed(AttemptFailed):
    """Ours: retried while attempts last, never billed."""
