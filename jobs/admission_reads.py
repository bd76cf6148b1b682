"""What admission reads, as plain SQL: it runs for every request, and composing these queries cost more than running them."""

from collections.abc import Collection
from uuid import UUID

from django.db import connection

from compute_site.core.db import all_rows, require_transaction
from jobs.billing.models import Account

# The account asked for, or the user's only one. Membership is read with the lock.
ACCOUNT_SQL = """
SELECT a.*, clock_timestamp() AS now
  FROM billing_account a
 WHERE a.id IN (SELECT account_id FROM billing_membership WHERE user_id = %(user)s)
   AND CASE WHEN %(wanted)s::uuid IS NULL
            THEN (SELECT count(*) FROM billing_membership WHERE user_id = %(user)s) = 1
            ELSE a.public_id = %(wanted)s::uuid END
"""
LOCK_SQL = f"{ACCOUNT_SQL} FOR NO KEY UPDATE OF a"
QUEUE_AND_KEY_SQL = """
SELECT (SELECT count(*) FROM jobs_job WHERE account_id = %(account)s AND status = 'queued'), k.job_id, k.body_sha256
  FROM (VALUES (1)) one LEFT JOIN jobs_idempotencykey k ON k.account_id = %(account)s AND k.key = %(key)s
"""
PRICES_SQL = """
SELECT l.environment_id, l.currency, r.slug, p.per_minute
  FROM environments_pricelist l
  JOIN environments_price p ON p.price_list_id = l.id
  JOIN environments_resource r ON r.id = p.resource_id
 WHERE l.environment_id = ANY(%s)
 ORDER BY l.currency, r.id
"""
Prices = dict[str, dict[str, str]]  # by currency and resource slug: per unit and minute, as decimal text


def lock_account(user_id: int, wanted: UUID | None) -> Account | None:
    """Lock the user's account `wanted`, or the only one; `.now` is the database's time. None: there is no such one."""
    require_transaction()
    return _account(LOCK_SQL, user_id, wanted)


def read_account(user_id: int, wanted: UUID | None) -> Account | None:
    """As `lock_account`, but nothing is locked."""
    return _account(ACCOUNT_SQL, user_id, wanted)


def _account(statement: str, user_id: int, wanted: UUID | None) -> Account | None:
    return next(iter(Account.objects.raw(statement, {"user": user_id, "wanted": wanted})), None)


def queue_and_key(account: Account, key: str) -> tuple[int, int | None, str | None]:
    """Queued jobs of the account; the job's key and the body's hash that `key` stands for. To be read under the lock."""
    with connection.cursor() as cursor:
        cursor.execute(QUEUE_AND_KEY_SQL, {"account": account.pk, "key": key})
        row = cursor.fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def read_prices(environment_ids: Collection[int]) -> dict[int, Prices]:
    """The prices of each environment, by its key; the first currency is the one that counts where none is named.

    A price list without a price is none. One statement.
    """
    prices: dict[int, Prices] = {key: {} for key in environment_ids}
    for environment_id, currency, slug, price in all_rows(PRICES_SQL, [list(environment_ids)]):
        prices[environment_id].setdefault(currency, {})[slug] = format(price, "f")
    return prices
