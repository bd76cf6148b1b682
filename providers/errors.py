"""What can go wrong at a provider. No message carries a body, a header or a key: only method, path and status.

`instance_id` is set when the provider had created something before the error: it exists until its absence is confirmed.
"""

from compute_site.core.errors import SiteError


class ProviderError(SiteError):
    """A provider refused or failed; unless a subclass says otherwise, nothing was created by the refused call."""

    code = "provider_error"

    def __init__(self, message: str, *, method: str = "", path: str = "", status: int = 0) -> None:
        where = f"{method} {path} answered {status}: " if status else f"{method} {path}: " if method else ""
        super().__init__(f"{where}{message}")
        self.method = method
        self.path = path
        self.status = status
        self.instance_id = ""


class CostGuardrailError(ProviderError):
    """Refused by a rule of ours before any call that creates: nothing was billed."""

    code = "cost_guardrail"


class PriceTooHigh(ProviderError):
    """What was created bills more than the cap: it is being terminated."""

    code = "price_too_high"


class TemplateMismatch(ProviderError):
    """A template of that name exists and says something else: it is never used."""

    code = "template_mismatch"


class ProviderAuthError(ProviderError):
    """401: the key is not valid."""

    code = "key_refused"


class PermissionRefused(ProviderError):
    """403: the key may not do this."""

    code = "permission_refused"


class ScopeMissing(PermissionRefused):
    """403: the key lacks the scope of this call."""

    code = "scope_missing"


class FirewallRefused(PermissionRefused):
    """403 that does not come from the provider's API but from its edge: size or content of the request."""

    code = "firewall_refused"


class NotFound(ProviderError):
    """404."""

    code = "not_found"


class RateLimited(ProviderError):
    """429; `wait` is in seconds. It says nothing about what exists."""

    code = "rate_limited"
    wait = 60.0


class InsufficientCredit(ProviderError):
    """No credit, or the key's budget is used up; never retried."""

    code = "insufficient_credit"


class SoldOut(ProviderError):
    """Nothing that fits is free now; nothing was created."""

    code = "sold_out"


class ProviderUnavailable(ProviderError):
    """No answer, or a fault of theirs, to a call that creates nothing."""

    code = "provider_unavailable"


class OutcomeUnknown(ProviderError):
    """A call that creates was sent and its answer was lost or cannot be read: something may exist and bill."""

    code = "outcome_unknown"


class MalformedResponse(ProviderError):
    """An answer that cannot be read; in a listing it is never read as "nothing there"."""

    code = "malformed_response"
