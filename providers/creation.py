"""The guard behind every create: whatever fails after it, what was created is terminated again."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from time import sleep

from providers.base import Instance, InstanceSpec, Provider
from providers.errors import PriceTooHigh, ProviderError

CONFIRMATIONS = 3
TRIES = 6


@contextmanager
def guarded(provider: Provider, instance_id: str) -> Iterator[None]:
    """Inside, any exception terminates the instance; the first error is the one that surfaces, with its id."""
    try:
        yield
    except BaseException as first:
        abandon(provider, instance_id)
        if isinstance(first, ProviderError):
            first.instance_id = instance_id
            raise
        if not isinstance(first, Exception):
            raise
        failed = ProviderError(f"{type(first).__name__} after the create")
        failed.instance_id = instance_id
        raise failed from first


def abandon(provider: Provider, instance_id: str) -> bool:
    """Terminate, again and again, until three good listings in a row lack it; False when the tries run out."""
    absent = 0
    for turn in range(TRIES + CONFIRMATIONS):
        try:
            if not absent:
                provider.terminate(instance_id)
            absent = absent + 1 if provider.verify_terminated(instance_id) else 0
        except ProviderError:
            absent = 0
        if absent == CONFIRMATIONS:
            return True
        sleep(0.1 if absent else min(0.25 * 2**turn, 4.0))
    return False


def check_price(spec: InstanceSpec, instance: Instance) -> None:
    """Raises PriceTooHigh when it bills more than the cap allows for all its GPUs."""
    allowed: Decimal = spec.max_price_per_hour * spec.gpu_count
    if instance.price_per_hour is not None and instance.price_per_hour > allowed:
        raise PriceTooHigh(f"It bills {instance.price_per_hour} per hour; the cap is {allowed}.")
