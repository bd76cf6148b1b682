"""The exception that a benchmark environment is: it owns no core and claims any of its host, and its job runs alone.

Everything that reserves, counts or checks asks here. Why it is so: `environments/benchmark.py`.
"""

from collections.abc import Collection

from django.conf import settings
from django.db.models import F, QuerySet

from compute_site.core.db import all_rows
from environments.models import Core, Environment

# In SQL about an environment e on its host h, of a core c: whether a job of e may claim it when it is free.
MAY_CLAIM = "(c.environment_id = e.id OR e.benchmark AND c.index < h.cpu_count)"
# Whether a benchmark ended on a host h less than `rest` seconds ago; by environments, so that old rows cost nothing.
MEASURED_LATELY = """EXISTS (
         SELECT FROM environments_engine o JOIN environments_environment y ON y.engine_id = o.id AND y.benchmark
           JOIN environments_reservation x ON x.environment_id = y.id
          WHERE o.host_id = h.id AND x.exited_at > clock_timestamp() - make_interval(secs => %(rest)s))"""
# Why nothing of e may start on h now, or NULL. `measured`: a benchmark runs. For a benchmark itself `others`, somebody
# holds anything at all, or `rest`, others have their turn.
IN_THE_WAY = f"""
CASE WHEN NOT e.benchmark THEN
       CASE WHEN EXISTS (SELECT FROM environments_reservation x JOIN environments_environment y ON y.id = x.environment_id
                          WHERE x.host_id = h.id AND x.released_at IS NULL AND x.exited_at IS NULL AND y.benchmark)
            THEN 'measured' END
     WHEN EXISTS (SELECT FROM environments_reservation x WHERE x.host_id = h.id AND x.released_at IS NULL) THEN 'others'
     WHEN {MEASURED_LATELY} THEN 'rest' END"""
ASK_SQL = f"""
SELECT e.id, {IN_THE_WAY}
  FROM environments_environment e JOIN environments_engine g ON g.id = e.engine_id
  JOIN environments_host h ON h.id = g.host_id WHERE e.id = ANY(%(environments)s)
"""
WORDS = {
    "measured": "a benchmark runs on its host, alone",
    "others": "a benchmark runs alone, and others hold something of its host",
    "rest": "its host was measured a short while ago, now others have their turn",
}


def in_the_way(environment_ids: Collection[int]) -> dict[int, str]:
    """Of which of these environments nothing may start now for the sake of a benchmark, and why, in words. One statement."""
    values = {"environments": list(environment_ids), "rest": settings.MAX_BYPASS_SECONDS}
    return {key: WORDS[why] for key, why in all_rows(ASK_SQL, values) if why is not None}


def claimable_cores(environment: Environment) -> QuerySet[Core]:
    """Its own, held or not; a benchmark's are all of its host."""
    if environment.benchmark:
        return Core.objects.filter(host=environment.host, index__lt=F("host__cpu_count"))
    return Core.objects.filter(environment=environment)
