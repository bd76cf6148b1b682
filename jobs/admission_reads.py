"""What admission reads, as plain SQL: it runs for every request, and composing these queries cost more than running them."""

from uuid import UUID

from django.db import connection

from compute_site.core.db import require_transaction
from jobs.billing.models import Account

# The account asked for, or the user's only one. Membership is read with the lock.
LOCK_SQL = """
SELECT a.*, clock_timestamp() AS now
  FROM billing_account a
 WHERE a.id IN (SELECT account_id FROM billing_membership WHERE user_id = %(user)s)
   AND CASE WHEN %(wanted)s::uuid IS NULL
            THEN (SELECT count(*) FROM billing_membership WHERE user_id = %(user)s) = 1
            ELSE a.public_id = %(wanted)s::uuid END
   FOR NO KEY UPDATE OF a
"""
QUEUE_AND_KEY_SQL = """
SELECT (SELECT count(*) FROM jobs_job WHERE account_id = %(account)s AND status = 'queued'), k.job_id, k.body_sha256
  FROM (VALUES (1)) one LEFT JOIN jobs_idempotencykey k ON k.account_id = %(account)s AND k.key = %(key)s
"""
OFFER_SQL = """
SELECT r.slug, r.kind, l.currency, p.per_minute
  FROM environments_resource r
  LEFT JOIN environments_price p ON p.resource_id = r.id
  LEFT JOIN environments_pricelist l ON l.id = p.price_list_id
 WHERE r.environment_id = %s
 ORDER BY l.currency, r.id
"""


def lock_account(user_id: int, wanted: UUID | None) -> Account | None:
    """Lock the user's account `wanted`, or the only one; `.now` is the database's time. None: there is no such one."""
    require_transaction()
    rows = Account.objects.raw(LOCK_SQL, {"user": user_id, "wanted": wanted})
    return next(iter(rows), None)


def queue_and_key(account: Account, key: str) -> tuple[int, int | None, str | None]:
    """Queued jobs of the account; the job's key and the body's hash that `key` stands for. Read under the lock."""
    with connection.cursor() as cursor:
        cursor.execute(QUEUE_AND_KEY_SQL, {"account": account.pk, "key": key})
        row = cursor.fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def read_offer(environment_id: int, currency: str = "") -> tuple[dict[str, str], str, dict[str, str]]:
    """Kinds by resource; the currency, by default the first that has prices; prices per unit and minute as decimal text.

    Where nothing has a price (in that currency) there are none.
    """
    with connection.cursor() as cursor:
        cursor.execute(OFFER_SQL, [environment_id])
        rows = cursor.fetchall()
    kinds = {slug: kind for slug, kind, _, _ in rows}
    currency = currency or next((name for _, _, name, _ in rows if name is not None), "")
    prices = {slug: format(price, "f") for slug, _, name, price in rows if name == currency != ""}
    return kinds, currency, prices
