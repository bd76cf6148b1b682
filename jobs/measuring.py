"""When a benchmark job has waited so long that its host starts nothing else until it has run."""

from collections.abc import Iterable

from django.conf import settings

from compute_site.core.db import all_rows
from environments.alone import MEASURED_LATELY
from environments.models import Environment
from environments.slots import REACH_SQL
from jobs.line import RUNS_SQL, WAITS_NOW_SQL

# About an engine g: whether nothing but a benchmark may start on its host. A job of a benchmark environment is due once
# others have passed it for `rest` seconds, and no benchmark has run on the host for as long. It keeps the host only
# for what will come: a worker that takes it, an account that may, amounts that can be had; and only while all that is
# held there is about to end, so that what is stuck does not stop the host for its sake.
DUE = f"""EXISTS (
    SELECT FROM environments_environment b
      JOIN environments_engine o ON o.id = b.engine_id
      JOIN environments_host h ON h.id = o.host_id
      JOIN jobs_job q ON q.environment_id = b.id
     WHERE o.host_id = g.host_id AND b.benchmark AND b.state <> 'retired' AND o.state = 'active'
       AND o.worker_seen_at > clock_timestamp() - make_interval(secs => %(alive)s)
       AND {WAITS_NOW_SQL}
       AND q.passed_over_since <= clock_timestamp() - make_interval(secs => %(rest)s)
       AND (SELECT count(*) FROM jobs_job r WHERE r.account_id = q.account_id
               AND r.{RUNS_SQL}) < %(cap)s
       AND NOT EXISTS (
           SELECT FROM jsonb_each_text(q.terms->'resources') a (slug, amount)
             LEFT JOIN environments_resource r ON r.environment_id = b.id AND r.slug = a.slug
            WHERE a.amount::bigint > CASE r.kind
                  WHEN 'device' THEN (SELECT count(*) FROM environments_resourcedevice x
                                        JOIN environments_device d ON d.id = x.device_id
                                       WHERE x.resource_id = r.id AND d.health = 'healthy')
                  WHEN 'ram' THEN LEAST(r.total, h.memory_mib - h.reserve_memory_mib)
                  WHEN 'disk' THEN LEAST(r.total, h.disk_mib - h.reserve_disk_mib)
                  ELSE COALESCE(r.total, 0) END)
       AND EXISTS (
           SELECT FROM environments_slots live WHERE live.engine_id = o.id AND live.released_at IS NULL AND NOT EXISTS (
               SELECT FROM ({REACH_SQL.format(choice="s.id = live.id AND r.environment_id = b.id")}) reach
                WHERE reach.most < (q.terms->'resources'->>reach.slug)::bigint))
       AND NOT {MEASURED_LATELY}
       AND NOT EXISTS (
           SELECT FROM environments_reservation x
             JOIN environments_environment y ON y.id = x.environment_id
             LEFT JOIN environments_freetier t ON t.environment_id = y.id
            WHERE x.host_id = h.id AND x.released_at IS NULL AND x.created_at < clock_timestamp() - make_interval(
                  secs => %(rest)s + GREATEST(y.max_job_duration, t.max_job_duration))))"""


def due_values() -> dict[str, int]:
    """What `DUE` asks for, by name."""
    return {
        "alive": settings.WORKER_TTL_SECONDS,
        "rest": settings.MAX_BYPASS_SECONDS,
        "cap": settings.MAX_RUNNING_JOBS_PER_ACCOUNT,
    }


def kept_for_a_benchmark(environments: Iterable[Environment]) -> set[int]:
    """Keys of those of which nothing starts although their host has room: a benchmark is due there. One statement."""
    engines = {one.pk: one.engine_id for one in environments if not one.benchmark}
    values = {"engines": list(set(engines.values())), **due_values()}
    rows = all_rows(f"SELECT g.id FROM environments_engine g WHERE g.id = ANY(%(engines)s) AND {DUE}", values)
    due = {engine for (engine,) in rows}
    return {key for key, engine in engines.items() if engine in due}
