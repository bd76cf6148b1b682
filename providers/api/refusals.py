"""Refusals of rules and of providers as refusals of the REST API; no word of a provider's body gets out."""

from collections.abc import Iterator
from contextlib import contextmanager

from compute_site.core.errors import Rejected
from providers import errors
from providers.keys import KeyUnreadable

STATUS: list[tuple[type[errors.ProviderError], int]] = [
    (errors.CostGuardrailError, 422),
    (errors.SoldOut, 409),
    (errors.InsufficientCredit, 402),
    (errors.NotFound, 404),
    (errors.RateLimited, 503),
    (errors.ProviderUnavailable, 503),
    (errors.ProviderError, 502),
]


class ProviderRefused(Rejected):
    """What a provider, or a rule about it, refused."""


@contextmanager
def told() -> Iterator[None]:
    """Inside, a ProviderError becomes a refusal with its code and the fitting status."""
    try:
        yield
    except KeyUnreadable as error:
        refused = ProviderRefused(str(error), code="key_unreadable")
        refused.status = 409
        raise refused from None
    except errors.ProviderError as error:
        refused = ProviderRefused(str(error), code=error.code)
        refused.status = next(status for kind, status in STATUS if isinstance(error, kind))
        raise refused from None
