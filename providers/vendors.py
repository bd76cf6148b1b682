"""From an account to a client of its provider."""

from collections.abc import Iterator
from contextlib import contextmanager

from providers import lium, targon
from providers.base import Provider
from providers.lium import Lium
from providers.models import ProviderAccount, ProviderKind
from providers.targon import Targon

CLIENTS: dict[str, tuple[type[Lium] | type[Targon], str]] = {
    ProviderKind.LIUM: (Lium, lium.BASE_URL),
    ProviderKind.TARGON: (Targon, targon.BASE_URL),
}


@contextmanager
def connected(account: ProviderAccount) -> Iterator[Provider]:
    """A client for the account, closed at the end. Raises KeyUnreadable."""
    make, address = CLIENTS[account.kind]
    client = make(account.open_key(), account.base_url or address)
    try:
        yield client
    finally:
        client.close()


def has_own_clock(account: ProviderAccount) -> bool:
    """Whether the provider itself ends a pod at its time."""
    return CLIENTS[account.kind][0].has_own_clock
