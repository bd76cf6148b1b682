"""The accounts in great numbers: long random histories, and many processes on one host."""

from typing import Any

from hypothesis import HealthCheck, seed
from hypothesis import settings as Settings
from hypothesis.stateful import run_state_machine_as_test

from tests.accounts.contention import contend_in_processes, make_rack
from tests.accounts.histories import Histories, prepare
from tests.chaos.scale import SEED, times


def test_long_histories_keep_every_promise(db: None, settings: Any) -> None:
    """300 histories of 60 steps; the numbers of the seed come again."""
    print(f"seed {SEED}")
    prepare(settings)
    plan = Settings(
        max_examples=times(300), stateful_step_count=60, deadline=None, database=None, print_blob=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(seed(SEED)(Histories), settings=plan)
    print(Histories.told())


def test_32_processes_share_a_host(transactional_db: None) -> None:
    """2,000 times each on 64 cores and 8 devices in three environments of two engines: nothing twice, no deadlock."""
    print(f"seed {SEED}")
    environments = make_rack(cores=64, devices=8, memory=65_536)
    found = contend_in_processes(environments, processes=32, rounds=times(2000), seed=SEED)
    print(found)
    assert found.outcomes.total() == 32 * times(2000)
    assert found.deadlocks == 0
