"""Why a reservation does not fit: the error for the caller, and one line in the log for the operator."""

import logging
from dataclasses import dataclass

from compute_site.core.db import first_row
from compute_site.core.errors import CapacityUnavailable
from environments.models import Environment, Tier
from environments.use import ResourceUse

log = logging.getLogger(__name__)

# Used and physical on the host by kind, and who holds something there. cpu: cores; device: those of the resource, and
# as physical the healthy ones; ram and disk: MiB, without the reserve; jobs, uid: a count.
ON_HOST_SQL = """
SELECT CASE %(kind)s
       WHEN 'cpu' THEN (SELECT count(*) FROM environments_reservedcore x JOIN environments_core c ON c.id = x.core_id
                         WHERE c.host_id = h.id AND x.released_at IS NULL)
       WHEN 'device' THEN (SELECT count(*) FROM environments_reserveddevice x
                             JOIN environments_resourcedevice o ON o.device_id = x.device_id
                            WHERE o.resource_id = %(resource)s AND x.released_at IS NULL)
       WHEN 'jobs' THEN (SELECT count(*) FROM environments_reservation
                         WHERE host_id = h.id AND released_at IS NULL AND exited_at IS NULL AND status = 'held')
       WHEN 'uid' THEN (SELECT count(*) FROM environments_reservation WHERE host_id = h.id AND released_at IS NULL)
       ELSE (SELECT COALESCE(sum(amount), 0)::bigint FROM environments_reservedamount
              WHERE host_id = h.id AND kind = %(kind)s AND released_at IS NULL) END,
       CASE %(kind)s
       WHEN 'cpu' THEN h.cpu_count
       WHEN 'device' THEN (SELECT count(*) FROM environments_resourcedevice o
                             JOIN environments_device d ON d.id = o.device_id
                            WHERE o.resource_id = %(resource)s AND d.host_id = h.id AND d.health = 'healthy')
       WHEN 'ram' THEN h.memory_mib - h.reserve_memory_mib
       WHEN 'disk' THEN h.disk_mib - h.reserve_disk_mib END,
       ARRAY(SELECT holder::text FROM environments_reservation
              WHERE host_id = h.id AND released_at IS NULL ORDER BY id LIMIT 8)
  FROM environments_host h WHERE h.id = %(host)s
"""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Refusals of one acquire: of an environment and tier, on a host."""

    environment: Environment
    tier: str
    host_id: int

    def resource(self, slug: str, asked: int, use: ResourceUse | None) -> CapacityUnavailable:
        """`asked` of a resource does not fit; no `use`: the environment does not offer it."""
        if use is None:
            return self._refused(slug, asked, f"{slug} is not offered")
        used, total = use.used, use.total
        if self.tier == Tier.FREE:
            used, total = use.used_free, use.free_tier_total or 0
        error = self._refused(
            slug,
            asked,
            f"needs {asked} {slug}, {use.room(self.tier)} free",
            kind=use.kind,
            resource_id=use.resource_id,
            used=used,
            total=total,
        )
        error.of_host = use.short_by_host(asked, self.tier)
        return error

    def other(self, slug: str, told: str, *, used: int = 0, total: int | None = None) -> CapacityUnavailable:
        """One more of `jobs`, `uid` or `cpu` (a core) is not to be had."""
        return self._refused(slug, 1, told, kind=slug, used=used, total=total)

    def _refused(
        self,
        slug: str,
        asked: int,
        told: str,
        *,
        kind: str = "",
        resource_id: int | None = None,
        used: int | None = None,
        total: int | None = None,
    ) -> CapacityUnavailable:
        values = {"kind": kind, "resource": resource_id, "host": self.host_id}
        on_host, physical, holders = first_row(ON_HOST_SQL, values) or (None, None, [])
        log.info(
            "not reserved: environment=%s tier=%s resource=%s asked=%d used=%s total=%s used_on_host=%s physical=%s"
            " holders=%s",
            *(self.environment.slug, self.tier, slug, asked, used, total, on_host, physical),
            ",".join(holders) or "none",
        )
        return CapacityUnavailable(told, resource=slug)
