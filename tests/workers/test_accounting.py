"""The accounts hold in whatever order things happen; the long form is in tests/chaos."""

from hypothesis import HealthCheck
from hypothesis import settings as Settings
from hypothesis.stateful import run_state_machine_as_test

from tests.accounts.histories import Histories, prepare

SHORT = Settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_random_histories_keep_every_promise_of_the_accounts(db, settings):
    prepare(settings)
    run_state_machine_as_test(Histories, settings=SHORT)
    assert Histories.seen["taken"] > 20, Histories.told()
    assert Histories.seen["refused"] > 5, Histories.told()
