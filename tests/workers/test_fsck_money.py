"""fsck notices money that does not add up: each row that only a fault could write is told."""

import pytest
from django.db import connection

from jobs.billing.models import Hold
from tests.factories import submit, take
from workers.fsck import row_disagreements

FORGED = {
    "UPDATE billing_balance SET held = held + 1": ["held, its open holds sum to 10"],
    "UPDATE billing_balance SET amount = amount - 1": ["its ledger entries sum to 1000000"],
    "UPDATE billing_ledgerentry SET amount = amount + 1 WHERE account_id IS NULL": ["does not sum to zero: 1"],
    "DELETE FROM billing_ledgerentry WHERE account_id IS NOT NULL": ["does not sum to zero: -", "sum to 0"],
    "UPDATE billing_hold SET status = 'released', ended_at = now()": ["is released although", "sum to 0"],
    "UPDATE billing_hold SET status = 'captured', captured = 3, ended_at = now()": [
        "is captured although", "3.000000000000000000 of its hold is captured, 0 is in the ledger", "sum to 0",
    ],
    "UPDATE jobs_job SET status = 'failed', end_reason = 'killed', finished_at = now()": ["is open although", "with a live attempt"],
}  # fmt: skip


@pytest.mark.parametrize("statement", FORGED)
def test_each_disagreement_is_told(site, user, account, statement):
    take(submit(user, max_duration=600))
    assert Hold.objects.get().amount == 10
    assert list(row_disagreements()) == []
    with connection.cursor() as cursor:
        cursor.execute(statement)
    lines = list(row_disagreements())
    assert len(lines) == len(FORGED[statement]), lines
    for words in FORGED[statement]:
        assert any(words in line for line in lines), (words, lines)
