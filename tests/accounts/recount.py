"""What is in use, counted anew from the raw rows: plain SELECTs and sums in Python, nothing of the code under test.

`read` takes a cursor of Django or of psycopg; `Rows.faults` names every promise of the accounts that these rows break.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
LIVE = "released_at IS NULL"
OF_LIVE = f"{LIVE} OR reservation_id IN (SELECT id FROM environments_reservation WHERE {LIVE})"
TABLES = {
    "host": "",
    "core": "",
    "device": "",
    "engine": "",
    "environment": "",
    "resource": "",
    "resourcedevice": "",
    "freetier": "",
    "freeresource": "",
    "reservation": LIVE,
    "reservedamount": OF_LIVE,
    "reservedcore": OF_LIVE,
    "reserveddevice": OF_LIVE,
}
PHYSICAL = {"ram": ("memory_mib", "reserve_memory_mib"), "disk": ("disk_mib", "reserve_disk_mib")}


def read(cursor: Any) -> "Rows":
    """All rows that say who offers and who holds what; of what was released only what a live reservation has."""
    found: dict[str, list[Row]] = {}
    for table, condition in TABLES.items():
        cursor.execute(f"SELECT * FROM environments_{table}{' WHERE ' + condition if condition else ''}")
        names = [column.name for column in cursor.description]
        found[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return Rows(found)


def by_id(rows: list[Row]) -> dict[int, Row]:
    return {row["id"]: row for row in rows}


@dataclass
class Rows:
    """The rows of one moment, with what the live ones add up to."""

    tables: Mapping[str, list[Row]]
    used: Counter[int] = field(default_factory=Counter)  # by resource
    used_free: Counter[int] = field(default_factory=Counter)
    used_on_host: Counter[tuple[int, str]] = field(default_factory=Counter)  # by host and kind
    shared: Counter[tuple[int, str]] = field(default_factory=Counter)  # by host and slug of a shared counter

    def __post_init__(self) -> None:
        self.hosts, self.engines = by_id(self.tables["host"]), by_id(self.tables["engine"])
        self.environments = by_id(self.tables["environment"])
        self.resources = by_id(self.tables["resource"])
        self.reservations = by_id(self.tables["reservation"])
        self.free_tiers = {row["environment_id"]: row for row in self.tables["freetier"]}
        self.free_parts = {row["resource_id"]: row for row in self.tables["freeresource"]}
        self.held_cores = Counter(row["core_id"] for row in self.live("reservedcore"))
        self.held_devices = Counter(row["device_id"] for row in self.live("reserveddevice"))
        for row in self.live("reservedamount"):
            resource, host = self.resources[row["resource_id"]], self.host_of(row["resource_id"])
            self.used[resource["id"]] += row["amount"]
            self.used_on_host[host, resource["kind"]] += row["amount"]
            if row["tier"] == "free":
                self.used_free[resource["id"]] += row["amount"]
            if self.is_shared_counter(resource):
                self.shared[host, resource["slug"]] += row["amount"]

    def live(self, table: str) -> list[Row]:
        return [row for row in self.tables[table] if row["released_at"] is None]

    def host_of(self, resource: int) -> int:
        environment = self.environments[self.resources[resource]["environment_id"]]
        found: int = self.engines[environment["engine_id"]]["host_id"]
        return found

    def size(self, host: int, kind: str) -> int:
        """Physical size less the reserve, in MiB."""
        size, reserve = PHYSICAL[kind]
        found: int = self.hosts[host][size] - self.hosts[host][reserve]
        return found

    @staticmethod
    def is_shared_counter(resource: Row) -> bool:
        return (resource["kind"], resource["sharing"]) == ("counter", "shared_exclusive")

    def members_free(self, resource: Row) -> int:
        """Cores or healthy devices of a resource that nobody holds anywhere."""
        if resource["kind"] == "cpu":
            mine = [row for row in self.tables["core"] if row["environment_id"] == resource["environment_id"]]
            return sum(not self.held_cores[row["id"]] for row in mine)
        healthy = {row["id"] for row in self.tables["device"] if row["health"] == "healthy"}
        offered = [
            row["device_id"] for row in self.tables["resourcedevice"] if row["resource_id"] == resource["id"]
        ]
        return sum(device in healthy and not self.held_devices[device] for device in offered)

    def jobs(self, environment: int, tier: str) -> int:
        """Jobs of a tier that count against its most jobs: reserved, and not known to have ended."""
        return sum(
            (row["environment_id"], row["tier"], row["status"], row["exited_at"])
            == (environment, tier, "held", None)
            for row in self.reservations.values()
        )

    def room(self, resource: Row, tier: str) -> int:
        """How much of a resource one more job of a tier could have."""
        host, kind = self.host_of(resource["id"]), resource["kind"]
        rooms = [resource["total"] - self.used[resource["id"]]]
        if kind in PHYSICAL:
            rooms.append(self.size(host, kind) - self.used_on_host[host, kind])
        elif kind in ("cpu", "device"):
            rooms.append(self.members_free(resource))
        elif self.is_shared_counter(resource):
            rooms.append(resource["total"] - self.shared[host, resource["slug"]])
        if tier == "free":
            part = self.free_parts.get(resource["id"])
            rooms.append(part["total"] - self.used_free[resource["id"]] if part else 0)
        return max(0, min(rooms))

    def fits(self, environment: int, tier: str, amounts: Mapping[str, int]) -> bool:
        """Whether a job of these amounts could be reserved for now."""
        row = self.environments[environment]
        if (
            row["state"] == "retired"
            or self.hosts[self.engines[row["engine_id"]]["host_id"]]["declared_gone_at"]
        ):
            return False
        if tier == "free" and environment not in self.free_tiers:
            return False
        most = (row if tier == "paid" else self.free_tiers[environment])["max_jobs"]
        if most is not None and self.jobs(environment, tier) >= most:
            return False
        mine = {one["slug"]: one for one in self.resources.values() if one["environment_id"] == environment}
        return all(slug in mine and amount <= self.room(mine[slug], tier) for slug, amount in amounts.items())

    def faults(self) -> Iterator[str]:
        """Every promise that is broken, one line each."""
        yield from self._sums()
        yield from self._things()
        for reservation in self.reservations.values():
            yield from self._whole(reservation)
        for table in ("reservedamount", "reservedcore", "reserveddevice"):
            for row in self.live(table):
                if row["reservation_id"] not in self.reservations:
                    yield f"{table} {row['id']} is live, its reservation is not"

    def _sums(self) -> Iterator[str]:
        for resource in self.resources.values():
            key, host = resource["id"], self.host_of(resource["id"])
            name = f"{resource['slug']} of environment {resource['environment_id']}"
            if self.used[key] > resource["total"]:
                yield f"{name}: {self.used[key]} used of {resource['total']}"
            part = self.free_parts.get(key)
            if self.used_free[key] > (part["total"] if part else 0):
                yield f"{name}: {self.used_free[key]} used by free jobs, of {part and part['total']}"
        for (host, slug), used in self.shared.items():
            same = [
                row for row in self.resources.values() if self.is_shared_counter(row) and row["slug"] == slug
            ]
            most = max(row["total"] for row in same if self.host_of(row["id"]) == host)
            if used > most:
                yield f"host {host}: {used} {slug} used, the most that is offered is {most}"
        for host in self.hosts:
            for kind in PHYSICAL:
                if self.used_on_host[host, kind] > self.size(host, kind):
                    yield f"host {host}: {self.used_on_host[host, kind]} {kind} used of {self.size(host, kind)}"

    def _things(self) -> Iterator[str]:
        """Cores and devices: held once anywhere, and offered by the environment that holds them."""
        cores = by_id(self.tables["core"])
        offered = {(row["environment_id"], row["device_id"]) for row in self.tables["resourcedevice"]}
        for row in self.live("reservedcore"):
            core = cores[row["core_id"]]
            if self.held_cores[core["id"]] > 1:
                yield f"core {core['index']} is held {self.held_cores[core['id']]} times"
            if core["environment_id"] != self._environment(row):
                yield f"core {core['index']} is held in environment {self._environment(row)}, which has it not"
            if core["index"] >= self.hosts[core["host_id"]]["cpu_count"]:
                yield f"core {core['index']} is held, and the host has no such core"
        for row in self.live("reserveddevice"):
            if self.held_devices[row["device_id"]] > 1:
                yield f"device {row['device_id']} is held {self.held_devices[row['device_id']]} times"
            if (self._environment(row), row["device_id"]) not in offered:
                yield f"device {row['device_id']} is held in environment {self._environment(row)}, which has it not"

    def _environment(self, row: Row) -> int | None:
        return self.reservations.get(row["reservation_id"], {}).get("environment_id")

    def _whole(self, reservation: Row) -> Iterator[str]:
        """All of it or nothing: every amount, as many cores and devices by row; after the exit the disk alone."""
        key, exited = reservation["id"], reservation["exited_at"] is not None
        amounts = [row for row in self.tables["reservedamount"] if row["reservation_id"] == key]
        wanted: dict[str, Counter[int]] = defaultdict(Counter)
        for row in amounts:
            wanted[row["kind"]][row["resource_id"]] = row["amount"]
            if (row["released_at"] is None) == (exited and row["kind"] != "disk"):
                yield f"reservation {key}, exited {exited}: its {row['kind']} is released at {row['released_at']}"
        cores = [row for row in self.tables["reservedcore"] if row["reservation_id"] == key]
        devices = [row for row in self.tables["reserveddevice"] if row["reservation_id"] == key]
        if not cores or len(cores) != wanted["cpu"].total():
            yield f"reservation {key} has {len(cores)} cores, its amount is {wanted['cpu'].total()}"
        if Counter(row["resource_id"] for row in devices) != wanted["device"]:
            yield f"reservation {key} has {len(devices)} devices, its amounts are {dict(wanted['device'])}"
        for row in (*cores, *devices):
            if (row["released_at"] is not None) != exited:
                yield f"reservation {key}, exited {exited}: a core or device is released at {row['released_at']}"
