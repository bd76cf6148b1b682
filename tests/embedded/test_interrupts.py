import os
import signal
from collections.abc import Iterator

import pytest

from compute_site.embedded.interrupts import Interrupted, Interrupts

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield Interrupts()
    for number, action in zip(SIGNALS, before, strict=True):
        signal.signal(number, action)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_asks_and_the_second_hurries(interrupts: Interrupts, number: signal.Signals):
    os.kill(os.getpid(), number)
    assert interrupts.asked.is_set()
    assert not interrupts.hurry.is_set()
    os.kill(os.getpid(), number)
    assert interrupts.hurry.is_set()


def test_inside_raising_the_first_raises_and_only_the_first(interrupts: Interrupts):
    with pytest.raises(Interrupted), interrupts.raising():
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted), interrupts.raising():
        pytest.fail("a stop that was asked for before must not be forgotten")
