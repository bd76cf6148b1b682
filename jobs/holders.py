"""The jobs that hold something of a machine now, and when each gives it back at the latest."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from compute_site.core.db import all_rows
from environments.models import ReservationStatus

OVERRUN_SECONDS = 60  # a job this long past its deadline does not end as it should: nobody knows when it will

HOLDERS_SQL = """
SELECT r.host_id, r.environment_id, e.benchmark, r.tier, r.status, r.exited_at IS NOT NULL,
       a.started_at, a.step_deadline, j.max_duration,
       (SELECT COALESCE(json_agg(json_build_array(m.resource_id, m.kind, o.slug, o.sharing, m.amount)), '[]')::text
          FROM environments_reservedamount m JOIN environments_resource o ON o.id = m.resource_id
         WHERE m.reservation_id = r.id AND m.released_at IS NULL),
       ARRAY(SELECT d.device_id FROM environments_reserveddevice d
              WHERE d.reservation_id = r.id AND d.released_at IS NULL)
  FROM environments_reservation r
  JOIN environments_environment e ON e.id = r.environment_id
  JOIN jobs_attempt a ON a.public_id = r.holder
  JOIN jobs_job j ON j.id = a.job_id
 WHERE r.released_at IS NULL AND r.host_id = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class HeldAmount:
    """How much of one resource."""

    resource_id: int
    kind: str
    slug: str
    sharing: str
    amount: int


@dataclass(frozen=True, slots=True)
class Holder:
    """One live reservation with the job behind it. Durations in seconds."""

    host_id: int
    environment_id: int
    benchmark: bool
    tier: str
    status: str
    exited: bool
    started_at: datetime | None
    step_deadline: datetime | None
    max_duration: int
    amounts: tuple[HeldAmount, ...]
    devices: frozenset[int]

    def ends_in(self, now: datetime) -> float | None:
        """Seconds until all that it holds is given back at the latest, never negative; None when nobody knows.

        A job that has not started yet has the deadline of its step before it; one that has exited keeps its disk.
        """
        if self.status == ReservationStatus.REVOKED:
            return None
        if self.exited:
            end = self.step_deadline
        elif self.started_at is not None:
            end = self.started_at + timedelta(seconds=self.max_duration)
        else:
            end = max(self.step_deadline or now, now) + timedelta(seconds=self.max_duration)
        if end is None or end < now - timedelta(seconds=OVERRUN_SECONDS):
            return None
        return max(0.0, (end - now).total_seconds())


def read_holders(host_ids: Collection[int | None]) -> list[Holder]:
    """All of these hosts; one statement."""
    rows = all_rows(HOLDERS_SQL, [[key for key in host_ids if key is not None]])
    found = []
    for *row, amounts, devices in rows:
        held = tuple(HeldAmount(*amount) for amount in json.loads(amounts))
        found.append(Holder(*[*row, held, frozenset(devices)]))
    return found
