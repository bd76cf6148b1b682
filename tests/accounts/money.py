"""What jobs and accounts must have in money, worked out anew from the raw rows in exact fractions."""

import json
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

# Whoever is to blame for these pays nothing: the site, the operator, nobody, or a client whose job never ran.
UNBILLED = {
    *("image_not_found", "image_unauthorized", "image_refused", "command_not_found", "input_unavailable"),
    *("input_mismatch", "cancelled_by_operator", "expired_in_queue", "registry_unavailable", "pull_timeout"),
    *("cannot_start", "policy_mismatch", "engine_lost", "start_lost", "worker_lost_too_often"),
    *("storage_failed", "disk_full", "internal_error"),
}
JOBS = """
SELECT j.id, j.terms::text, j.max_duration, j.end_reason, j.run_seconds, j.finished_at IS NOT NULL,
       h.status, h.amount, h.captured, a.started_at IS NOT NULL, a.end_reason
  FROM jobs_job j LEFT JOIN billing_hold h ON h.job_id = j.id
  LEFT JOIN LATERAL (SELECT * FROM jobs_attempt WHERE job_id = j.id ORDER BY number DESC LIMIT 1) a ON true
"""
ENTRIES = """
SELECT t.id, t.job_id, t.currency, e.account_id, e.book, e.amount
  FROM billing_ledgertransaction t JOIN billing_ledgerentry e ON e.transaction_id = t.id
"""
OPEN_HOLDS = "SELECT account_id, currency, amount FROM billing_hold WHERE status = 'open'"
BALANCES = "SELECT account_id, currency, amount, held FROM billing_balance"


def money_faults(cursor: Any) -> Iterator[str]:
    """Every promise about money that these rows break, one line each."""
    entries = _rows(cursor, ENTRIES)
    sums: dict[Any, Fraction] = defaultdict(Fraction)
    for transaction, job, currency, account, book, amount in entries:
        sums["transaction", transaction] += Fraction(amount)
        sums["account", account, currency] += Fraction(amount)
        if book == "revenue":
            sums["job", job] += Fraction(amount)
    yield from (f"{key} sums to {total}" for key, total in sums.items() if key[0] == "transaction" and total)
    for row in _rows(cursor, JOBS):
        yield from _job_faults(sums["job", row[0]], *row)
    for account, currency, amount in _rows(cursor, OPEN_HOLDS):
        sums["held", account, currency] += Fraction(amount)
    for account, currency, amount, held in _rows(cursor, BALANCES):
        if Fraction(amount) != sums["account", account, currency] or amount < held:
            yield f"account {account}: {amount} {currency}, entries {sums['account', account, currency]}"
        if Fraction(held) != sums["held", account, currency]:
            yield f"account {account}: {held} {currency} held, holds {sums['held', account, currency]}"


def _job_faults(
    paid: Fraction, key: int, terms: str, longest: int, reason: str, ran: float | None, final: bool,
    hold: str | None, held: Any, captured: Any, started: bool, attempt_reason: str | None,
) -> Iterator[str]:  # fmt: skip
    agreed = json.loads(terms)
    prices = agreed["prices"].items()
    price = sum((Fraction(one) * agreed["resources"].get(slug, 0) for slug, one in prices), Fraction(0))
    if not price:
        if hold is not None:
            yield f"job {key} costs nothing and has a hold"
        return
    most = price * _minutes(longest, agreed)
    if hold is None or Fraction(held) != most:
        yield f"job {key} may cost {most}, held are {held}"
        return
    billed = final and started and not {reason, attempt_reason} & UNBILLED
    owed = min(most, price * _minutes(ran or 0, agreed)) if billed else Fraction(0)
    if (hold == "open") == final or Fraction(captured) != owed or paid != owed:
        yield f"job {key}, final {final} as {reason}: owes {owed}; hold {hold}, captured {captured}, paid {paid}"


def _minutes(seconds: float, terms: dict[str, Any]) -> int:
    return -(-int(max(Fraction(seconds), terms["min_job_duration"]) * 10**9) // (60 * 10**9))


def _rows(cursor: Any, statement: str) -> list[Any]:
    cursor.execute(statement)
    found: list[Any] = cursor.fetchall()
    return found
