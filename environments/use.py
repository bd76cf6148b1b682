"""What is in use, read in one statement: the one place that knows how totals, shares and hosts add up."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from compute_site.core.db import all_rows
from environments.alone import MAY_CLAIM
from environments.models import Environment, Host, ResourceKind, Sharing, Tier

# One row per resource. Live rows only: every sum is a scan of a partial index, however many old rows there are.
USE_SQL = f"""
SELECT r.id, r.environment_id, e.slug, r.slug, r.kind, r.sharing, r.total, r.min, r.max,
       f.total, f.min, f.max,
       mine.used, mine.used_free,
       CASE WHEN r.kind IN ('ram', 'disk') THEN
                (SELECT COALESCE(sum(amount), 0)::bigint FROM environments_reservedamount
                  WHERE host_id = h.id AND kind = r.kind AND released_at IS NULL)
            WHEN r.kind = 'counter' AND r.sharing = 'shared_exclusive' THEN
                (SELECT COALESCE(sum(a.amount), 0)::bigint FROM environments_reservedamount a
                   JOIN environments_resource o ON o.id = a.resource_id
                  WHERE a.host_id = h.id AND a.kind = 'counter' AND a.released_at IS NULL
                    AND o.slug = r.slug AND o.sharing = r.sharing)
       END,
       CASE r.kind WHEN 'ram' THEN h.memory_mib - h.reserve_memory_mib
                   WHEN 'disk' THEN h.disk_mib - h.reserve_disk_mib END,
       CASE r.kind
            WHEN 'cpu' THEN
                (SELECT count(*) FROM environments_core c
                  WHERE {MAY_CLAIM} AND c.host_id = h.id AND NOT EXISTS
                        (SELECT FROM environments_reservedcore x WHERE x.core_id = c.id AND x.released_at IS NULL))
            WHEN 'device' THEN
                (SELECT count(*) FROM environments_resourcedevice o JOIN environments_device d ON d.id = o.device_id
                  WHERE o.resource_id = r.id AND d.host_id = h.id AND d.health = 'healthy' AND NOT EXISTS
                        (SELECT FROM environments_reserveddevice x WHERE x.device_id = d.id AND x.released_at IS NULL))
       END,
       h.id
  FROM environments_resource r
  JOIN environments_environment e ON e.id = r.environment_id
  JOIN environments_engine g ON g.id = e.engine_id
  LEFT JOIN environments_host h ON h.id = g.host_id
  LEFT JOIN environments_freetier t ON t.environment_id = e.id
  LEFT JOIN environments_freeresource f ON f.free_tier_id = t.id AND f.resource_id = r.id
  LEFT JOIN LATERAL (
       SELECT COALESCE(sum(amount), 0)::bigint AS used,
              COALESCE(sum(amount) FILTER (WHERE tier = 'free'), 0)::bigint AS used_free
         FROM environments_reservedamount WHERE resource_id = r.id AND released_at IS NULL) mine ON true
 WHERE r.environment_id {{choice}}
 ORDER BY r.environment_id, r.id
"""


@dataclass(frozen=True)
class ResourceUse:
    """A resource with what live reservations hold of it. Units: cores, MiB, devices, counts.

    `free_tier_*` are None where free jobs get none of it. `host_used` and `host_size` (less the reserve) are those of
    ram and disk, `host_used` also that of a shared counter; `members_free` counts cores or devices that nobody holds.
    """

    resource_id: int
    environment_id: int
    environment_slug: str
    slug: str
    kind: str
    sharing: str
    total: int
    min: int
    max: int
    free_tier_total: int | None
    free_tier_min: int | None
    free_tier_max: int | None
    used: int
    used_free: int
    host_used: int | None
    host_size: int | None
    members_free: int | None
    host_id: int | None

    @property
    def host_free(self) -> int | None:
        """What nobody on the host holds: memory and disk, a shared counter, cores and devices; None for the rest."""
        if self.host_id is None:
            return None
        if self.kind in (ResourceKind.RAM, ResourceKind.DISK):
            return (self.host_size or 0) - (self.host_used or 0)
        if self.kind == ResourceKind.COUNTER and self.sharing == Sharing.SHARED_EXCLUSIVE:
            return self.total - (self.host_used or 0)
        return self.members_free

    @cached_property
    def free(self) -> int:
        """What one more paid job could get now: the smallest of the environment's, the host's and the free members."""
        rooms = [self.total - self.used]
        if self.host_free is not None:
            rooms.append(self.host_free)
        return max(0, min(rooms))

    @cached_property
    def free_tier_free(self) -> int:
        """What one more free job could get now; 0 where the free tier does not list the resource."""
        if self.free_tier_total is None:
            return 0
        return max(0, min(self.free, self.free_tier_total - self.used_free))

    @property
    def offered(self) -> int:
        """The total, but never more than the host has: what is shown to clients."""
        return self.capped(self.total)

    def capped(self, amount: int) -> int:
        """At most what the host has of it: a total, and what goes with it, may be more (ADR 0007)."""
        return amount if self.host_size is None else max(0, min(amount, self.host_size))

    def shares_with(self, other: "ResourceUse") -> bool:
        """Whether both come out of the same memory, disk, shared counter or (by their name) devices of one host."""
        if (self.host_id, self.kind) != (other.host_id, other.kind) or self.kind == ResourceKind.CPU:
            return False
        return self.kind in (ResourceKind.RAM, ResourceKind.DISK) or (
            (self.slug, self.sharing) == (other.slug, other.sharing)
            and self.sharing == Sharing.SHARED_EXCLUSIVE
        )

    def used_elsewhere(self, healthy: int = 0) -> int:
        """What other environments of the host hold of the same thing; of `healthy` devices where it is a device."""
        if self.kind == ResourceKind.DEVICE:
            return max(0, healthy - (self.members_free or 0) - self.used)
        return max(0, (self.host_used or 0) - self.used)

    def room(self, tier: str) -> int:
        """`free` or `free_tier_free`, by tier."""
        return self.free_tier_free if tier == Tier.FREE else self.free

    def own_room(self, tier: str) -> int:
        """What would be free by the environment's own total and use alone, whatever others of the host hold."""
        own = max(0, self.total - self.used)
        if tier != Tier.FREE:
            return own
        return 0 if self.free_tier_total is None else max(0, min(own, self.free_tier_total - self.used_free))

    def short_by_host(self, amount: int, tier: str) -> bool:
        """Whether `amount` does not fit only because others of the host hold it, or a device of it is unhealthy."""
        return self.room(tier) < amount <= self.own_room(tier)


def read_use(environment_ids: Collection[int]) -> list[ResourceUse]:
    """Every resource of these environments with its use; one statement. Under a host's lock it stays true.

    One environment has a statement of its own: only an equality gets a plan that PostgreSQL keeps.
    """
    keys = list(environment_ids)
    one = len(keys) == 1
    statement = USE_SQL.format(choice="= %s" if one else "= ANY(%s)")
    return [ResourceUse(*row) for row in all_rows(statement, keys if one else [keys])]


def free_amounts(environments: Iterable[Environment]) -> dict[int, dict[str, ResourceUse]]:
    """By environment key and resource slug: total, used, free and the free tier's part; one statement, no lock."""
    return uses_by_slug([environment.pk for environment in environments])


def uses_by_slug(environment_ids: Collection[int]) -> dict[int, dict[str, ResourceUse]]:
    """As `free_amounts`, of environments by their keys."""
    uses: dict[int, dict[str, ResourceUse]] = {key: {} for key in environment_ids}
    for use in read_use(environment_ids):
        uses[use.environment_id][use.slug] = use
    return uses


PLACES_SQL = """
SELECT e.id, t.tier, (SELECT count(*) FROM environments_reservation
                       WHERE environment_id = e.id AND tier = t.tier AND released_at IS NULL
                         AND exited_at IS NULL AND status = 'held'),
       CASE WHEN t.tier = 'free' THEN f.max_jobs ELSE e.max_jobs END
  FROM environments_environment e
 CROSS JOIN (VALUES ('paid'), ('free')) t (tier)
  LEFT JOIN environments_freetier f ON f.environment_id = e.id
 WHERE e.id = ANY(%s)
"""


def job_places(environment_ids: Iterable[int]) -> dict[tuple[int, str], tuple[int, int | None]]:
    """By environment key and tier: jobs that run there now, and the most that may (None = no limit).

    Paid and free jobs count apart. One statement.
    """
    rows = all_rows(PLACES_SQL, [list(environment_ids)])
    return {(environment, tier): (running, allowed) for environment, tier, running, allowed in rows}


@dataclass(frozen=True, slots=True)
class Place:
    """One core (by index) or device (by uuid) of a host: who offers it, which attempt holds it, if any, and which
    workers may reserve it for one.
    """

    name: str
    environments: tuple[str, ...]
    holder: UUID | None
    healthy: bool = True
    workers: tuple[str, ...] = ()  # whose slot it is


CORES_SQL = """
SELECT c.host_id, c.index::text, ARRAY_REMOVE(ARRAY[g.name || '/' || e.slug], NULL), r.holder, true,
       ARRAY(SELECT s.holder FROM environments_slots s
              WHERE s.engine_id = g.id AND s.released_at IS NULL AND c.index::bigint <@ s.cores)
  FROM environments_core c
  LEFT JOIN environments_environment e ON e.id = c.environment_id
  LEFT JOIN environments_engine g ON g.id = e.engine_id
  LEFT JOIN environments_reservedcore x ON x.core_id = c.id AND x.released_at IS NULL
  LEFT JOIN environments_reservation r ON r.id = x.reservation_id
 WHERE c.host_id = ANY(%s) ORDER BY c.host_id, c.index
"""
DEVICES_SQL = """
SELECT d.host_id, d.uuid,
       ARRAY(SELECT g.name || '/' || e.slug FROM environments_resourcedevice o
               JOIN environments_environment e ON e.id = o.environment_id
               JOIN environments_engine g ON g.id = e.engine_id
              WHERE o.device_id = d.id ORDER BY 1),
       r.holder, d.health = 'healthy',
       ARRAY(SELECT s.holder FROM environments_slots s
              WHERE s.released_at IS NULL AND d.id <@ s.devices AND s.engine_id IN
                    (SELECT e.engine_id FROM environments_resourcedevice o
                       JOIN environments_environment e ON e.id = o.environment_id WHERE o.device_id = d.id)
              ORDER BY 1)
  FROM environments_device d
  LEFT JOIN environments_reserveddevice x ON x.device_id = d.id AND x.released_at IS NULL
  LEFT JOIN environments_reservation r ON r.id = x.reservation_id
 WHERE d.host_id = ANY(%s) ORDER BY d.id
"""


def core_map(host: Host) -> list[Place]:
    """Every core of the host in order, with the environment that has it and the attempt that holds it."""
    return core_maps([host.pk])[host.pk]


def device_map(host: Host) -> list[Place]:
    """Every device of the host, with the environments that offer it and the attempt that holds it."""
    return device_maps([host.pk])[host.pk]


def core_maps(host_ids: Collection[int]) -> dict[int, list[Place]]:
    """The core maps of several hosts, by the host's key; one statement."""
    return _places(CORES_SQL, host_ids)


def device_maps(host_ids: Collection[int]) -> dict[int, list[Place]]:
    """The device maps of several hosts, by the host's key; one statement."""
    return _places(DEVICES_SQL, host_ids)


def _places(statement: str, host_ids: Collection[int]) -> dict[int, list[Place]]:
    found: dict[int, list[Place]] = {key: [] for key in host_ids}
    for host_id, name, offers, holder, healthy, workers in all_rows(statement, [list(host_ids)]):
        found[host_id].append(Place(name, tuple(offers), holder, healthy, tuple(workers)))
    return found
