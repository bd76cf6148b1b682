"""The accounts hold in whatever order things happen; the long form is in tests/chaos."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.accounts.histories import Histories
from tests.accounts.world import make_world

SHORT = settings(
    max_examples=12,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_random_histories_keep_every_promise_of_the_accounts(db, settings):
    settings.RETRY_BACKOFF_SECONDS = 0
    settings.WORKER_TTL_SECONDS = 3600
    Histories.world = make_world()
    run_state_machine_as_test(Histories, settings=SHORT)
