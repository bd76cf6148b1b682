"""Many finished jobs with all that is kept of them, written in bulk: what a site looks like after a year."""

from typing import LiteralString

import psycopg

# In the order of their references. All of them ran in the environment `main`.
_STATEMENTS: tuple[LiteralString, ...] = (
    "INSERT INTO billing_account (public_id, name, created_at) VALUES (gen_random_uuid(), 'old', now())",
    """
    INSERT INTO jobs_job (public_id, account_id, environment_id, tier, status, phase, spec, spec_version, terms,
           terms_version, image_id, labels, max_duration, max_attempts, attempts_made, started_at, finished_at,
           cancel_requested_by, cancel_reason, end_reason, end_detail, exit_code, run_seconds, usage, manifest,
           manifest_sha256, refused_outputs, storage_expires_at)
    SELECT gen_random_uuid(), a.id, e.id, 'paid', 'succeeded', '', '{"command": ["true"]}', 1,
           '{"resources": {"cpu": 1, "ram": 256, "disk": 64}}', 1, 'sha256:' || repeat('0', 64), '{}', 60, 3, 1,
           now(), now(), '', '', 'succeeded', '', 0, 1.0, '{}', '{"version": 1}', repeat('0', 64), '[]',
           now() + interval '7 days'
      FROM billing_account a, environments_environment e, generate_series(1, %(count)s) WHERE e.slug = 'main'
    """,
    """
    INSERT INTO jobs_attempt (public_id, job_id, number, engine_id, status, token, nonce, uid, cores, device_uuids,
           step_tries, container_name, container_id, image_id, architecture, effective, started_at, stop_reason,
           exited_at, exit_code, exit_facts, end_reason, end_detail, finished_at, cleaned_at, leftover)
    SELECT gen_random_uuid(), j.id, 1, e.engine_id, 'settled', gen_random_uuid(), gen_random_uuid(), 2000500000,
           '[0]', '[]', 0, 'cs-old-' || j.id, '', '', 'amd64', '{}', now(), '', now(), 0, '{}', 'succeeded', '',
           now(), now(), ''
      FROM jobs_job j JOIN environments_environment e ON e.id = j.environment_id
    """,
    """
    INSERT INTO jobs_jobevent (job_id, attempt_id, kind, message, data)
    SELECT a.job_id, a.id, kind, '', '{}' FROM jobs_attempt a,
           unnest(ARRAY['queued', 'preparing', 'running', 'collecting', 'succeeded']) AS kind
    """,
    """
    INSERT INTO environments_reservation (holder, host_id, environment_id, tier, status, uid, exited_at, released_at)
    SELECT a.public_id, g.host_id, e.id, 'paid', 'released', 2000500000 + a.id %% 1000, now(), now()
      FROM jobs_attempt a JOIN jobs_job j ON j.id = a.job_id JOIN environments_environment e ON e.id = j.environment_id
      JOIN environments_engine g ON g.id = e.engine_id
    """,
    """
    INSERT INTO environments_reservedamount (reservation_id, resource_id, host_id, kind, tier, amount, released_at)
    SELECT r.id, s.id, r.host_id, s.kind, 'paid', 1, now()
      FROM environments_reservation r JOIN environments_resource s ON s.environment_id = r.environment_id
    """,
    """
    INSERT INTO environments_reservedcore (reservation_id, core_id, released_at)
    SELECT r.id, c.first + r.id %% c.count, now() FROM environments_reservation r
      JOIN (SELECT environment_id, min(id) AS first, count(*) FROM environments_core GROUP BY 1) c USING (environment_id)
    """,
)


def add_old_jobs(url: str, count: int) -> None:
    """`count` succeeded jobs, each with an attempt, events and a released reservation, in the database at `url`."""
    with psycopg.connect(url) as connection:
        for number, statement in enumerate(_STATEMENTS):
            connection.execute(
                statement, {"count": count} if number == 1 else None if "%%" not in statement else {}
            )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
