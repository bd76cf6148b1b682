"""The statements behind reservations. Every read sees live rows only, through partial indexes.

They run as prepared statements: planning them took longer than running them, all of it under the host's lock.
"""

from environments.alone import IN_THE_WAY, MAY_CLAIM

LOCK_SQL = (
    "SELECT pg_current_xact_id()::text, {columns} FROM environments_host WHERE id = %s FOR NO KEY UPDATE"
)
LOCK_BY_HOLDER_SQL = """
SELECT id FROM environments_host
 WHERE id = (SELECT host_id FROM environments_reservation WHERE holder = %s) FOR NO KEY UPDATE
"""
# What a claim needs beyond the sums: is it allowed at all, the free cores, a free uid, the jobs of its tier. The uid is
# the one after the highest that is live, one look into an index; only where the range ends there are the live ones
# searched for the lowest gap.
CLAIM_SQL = f"""
SELECT pg_current_xact_id()::text, h.id, h.declared_gone_at IS NOT NULL, e.state,
       CASE WHEN %(tier)s = 'free' THEN t.max_jobs ELSE e.max_jobs END,
       (SELECT count(*) FROM environments_reservation
         WHERE environment_id = e.id AND tier = %(tier)s AND released_at IS NULL
           AND exited_at IS NULL AND status = 'held'),
       ARRAY(SELECT ARRAY[c.id, c.index] FROM environments_core c
              WHERE {MAY_CLAIM} AND c.host_id = h.id AND c.index::bigint <@ %(cores)s::int8multirange
                AND NOT EXISTS
                    (SELECT FROM environments_reservedcore x WHERE x.core_id = c.id AND x.released_at IS NULL)
              ORDER BY c.index),
       CASE WHEN top.uid < %(first)s THEN %(first)s
            WHEN top.uid + 1 < %(first)s + %(count)s THEN top.uid + 1
            ELSE (SELECT min(uid) FROM
                         (SELECT %(first)s::bigint AS uid UNION ALL
                          SELECT uid + 1 FROM environments_reservation
                           WHERE host_id = h.id AND released_at IS NULL AND uid >= %(first)s) candidate
                   WHERE uid < %(first)s + %(count)s AND NOT EXISTS
                         (SELECT FROM environments_reservation x
                           WHERE x.host_id = h.id AND x.released_at IS NULL AND x.uid = candidate.uid)) END,
       {IN_THE_WAY}
  FROM environments_environment e
  JOIN environments_engine g ON g.id = e.engine_id
  JOIN environments_host h ON h.id = g.host_id
  LEFT JOIN environments_freetier t ON t.environment_id = e.id
 CROSS JOIN LATERAL (
       SELECT COALESCE(max(uid), -1) AS uid FROM environments_reservation
        WHERE host_id = h.id AND released_at IS NULL) top
 WHERE e.id = %(environment)s
"""
DEVICES_SQL = """
SELECT d.id, d.uuid FROM environments_resourcedevice o JOIN environments_device d ON d.id = o.device_id
 WHERE o.resource_id = %s AND d.host_id = %s AND d.health = 'healthy' AND d.id <@ %s::int8multirange AND NOT EXISTS
       (SELECT FROM environments_reserveddevice x WHERE x.device_id = d.id AND x.released_at IS NULL)
 ORDER BY d.id LIMIT %s
"""
INSERT_SQL = """
WITH claim AS (
    INSERT INTO environments_reservation (holder, host_id, environment_id, tier, status, uid)
    VALUES (%(holder)s, %(host)s, %(environment)s, %(tier)s, 'held', %(uid)s) RETURNING id),
amounts AS (
    INSERT INTO environments_reservedamount (reservation_id, resource_id, host_id, kind, tier, amount)
    SELECT claim.id, a.resource, %(host)s, a.kind, %(tier)s, a.amount FROM claim,
           unnest(%(resources)s::bigint[], %(kinds)s::text[], %(amounts)s::bigint[]) AS a (resource, kind, amount)),
cores AS (
    INSERT INTO environments_reservedcore (reservation_id, core_id)
    SELECT claim.id, core FROM claim, unnest(%(cores)s::bigint[]) AS core),
devices AS (
    INSERT INTO environments_reserveddevice (reservation_id, resource_id, device_id)
    SELECT claim.id, d.resource, d.device FROM claim,
           unnest(%(device_resources)s::bigint[], %(devices)s::bigint[]) AS d (resource, device))
SELECT id FROM claim
"""
RELEASE_RUNNING_SQL = """
WITH exited AS (
    UPDATE environments_reservation SET exited_at = clock_timestamp()
     WHERE holder = %s AND exited_at IS NULL AND released_at IS NULL RETURNING id),
cores AS (
    UPDATE environments_reservedcore SET released_at = clock_timestamp()
     WHERE reservation_id IN (SELECT id FROM exited) AND released_at IS NULL),
devices AS (
    UPDATE environments_reserveddevice SET released_at = clock_timestamp()
     WHERE reservation_id IN (SELECT id FROM exited) AND released_at IS NULL),
amounts AS (
    UPDATE environments_reservedamount SET released_at = clock_timestamp()
     WHERE reservation_id IN (SELECT id FROM exited) AND released_at IS NULL AND kind <> 'disk')
SELECT id FROM exited
"""
RELEASE_REST_SQL = """
WITH released AS (
    UPDATE environments_reservation SET status = 'released', released_at = clock_timestamp()
     WHERE holder = %s AND exited_at IS NOT NULL AND released_at IS NULL RETURNING id),
amounts AS (
    UPDATE environments_reservedamount SET released_at = clock_timestamp()
     WHERE reservation_id IN (SELECT id FROM released) AND released_at IS NULL)
SELECT id FROM released
"""
