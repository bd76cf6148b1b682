"""Which slots a worker asks for, who has them, and what a job needs of them.

A core or device belongs to the slots of one live worker per engine at most; PostgreSQL refuses a second. What is
counted (memory, disk, counters) stays the environment's and the host's, whoever takes.
"""

from collections.abc import Collection, Mapping, Sequence

from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import ValidationError
from django.db.models import BooleanField, F, Func, OuterRef

from compute_site.core.db import ClockTimestamp, all_rows
from environments.alone import MAY_CLAIM
from environments.cpuset import format_cores, parse_cores
from environments.models import Core, Device, Engine, Slots, SlotSet
from environments.models.slots import ALL, Numbers
from environments.use import uses_by_slug

Reach = dict[
    int, dict[str, int]
]  # of one environment: by the key of a worker's slots, the most of each resource
# By live worker: the most cores and devices that a job could ever get of its slots, whoever holds them now.
REACH_SQL = f"""
    SELECT s.id AS slots_id, r.environment_id, r.slug,
           CASE WHEN upper_inf(s.cores) THEN r.total
                WHEN r.kind = 'cpu' THEN (SELECT count(*) FROM environments_core c
                     WHERE c.host_id = h.id AND {MAY_CLAIM} AND c.index::bigint <@ s.cores)
                ELSE (SELECT count(*) FROM environments_resourcedevice o
                     WHERE o.resource_id = r.id AND o.device_id <@ s.devices)
           END AS most
      FROM environments_slots s
      JOIN environments_environment e ON e.engine_id = s.engine_id
      JOIN environments_engine g ON g.id = s.engine_id JOIN environments_host h ON h.id = g.host_id
      JOIN environments_resource r ON r.environment_id = e.id AND r.kind IN ('cpu', 'device')
     WHERE s.released_at IS NULL AND {{choice}}
"""


FREE_SQL = f"""
    SELECT r.environment_id, r.slug,
           CASE WHEN r.kind = 'cpu' THEN (SELECT count(*) FROM environments_core c
                     WHERE c.host_id = h.id AND {MAY_CLAIM} AND c.index::bigint <@ s.cores AND NOT EXISTS
                           (SELECT FROM environments_reservedcore x WHERE x.core_id = c.id AND x.released_at IS NULL))
                ELSE (SELECT count(*) FROM environments_resourcedevice o
                     WHERE o.resource_id = r.id AND o.device_id <@ s.devices AND NOT EXISTS
                           (SELECT FROM environments_reserveddevice x
                             WHERE x.device_id = o.device_id AND x.released_at IS NULL))
           END
      FROM environments_slots s
      JOIN environments_environment e ON e.engine_id = s.engine_id
      JOIN environments_engine g ON g.id = s.engine_id JOIN environments_host h ON h.id = g.host_id
      JOIN environments_resource r ON r.environment_id = e.id AND r.kind IN ('cpu', 'device')
     WHERE s.id = %s
"""


def free_in(slots: Slots) -> dict[tuple[int, str], int]:
    """By environment key and resource slug: how many cores or devices of these slots nobody holds. Empty for a worker
    that has all of its engine: there it is what is free in the environment.
    """
    if slots.cores is None:
        return {}
    return {(environment, slug): free for environment, slug, free in all_rows(FREE_SQL, [slots.pk])}


def reach_of(slots: Slots) -> dict[int, dict[str, int]]:
    """By environment key and resource slug: the most cores or devices that a job could ever get of these slots. Empty
    for a worker that has all of its engine, and then nothing is read."""
    found: dict[int, dict[str, int]] = {}
    if slots.cores is not None:
        for _, environment, slug, most in all_rows(REACH_SQL.format(choice="s.id = %s"), [slots.pk]):
            found.setdefault(environment, {})[slug] = most
    return found


def room_in(slots: Slots, environment_id: int, tier: str) -> dict[str, int]:
    """What one more job of the tier could get now of the environment, by resource slug: cores and devices out of these
    slots. Two statements at most."""
    free = free_in(slots)
    room = {slug: use.room(tier) for slug, use in uses_by_slug([environment_id])[environment_id].items()}
    return {slug: min(amount, free.get((environment_id, slug), amount)) for slug, amount in room.items()}


def read_slots(engine: Engine, cores: str | None, devices: str | None) -> SlotSet:
    """The slots that `--cores 0-3,8` and `--devices UUID,UUID` name on the engine's host.

    Without either it is all of the engine; with cores alone it is no device. Raises ValidationError, with the option
    as field, for what does not read, is not there, or is another engine's.
    """
    if cores is None and devices is None:
        return ALL
    if not (cores or "").strip(", "):
        raise ValidationError(
            {"cores": "Name at least one, for example 0-3,8: no job starts without a core."}
        )
    return SlotSet(_read_cores(engine, cores or ""), _read_devices(engine, devices or ""))


def _read_cores(engine: Engine, text: str) -> frozenset[int]:
    try:
        wanted = parse_cores(text)
    except ValidationError as error:
        raise ValidationError({"cores": error.messages}) from error
    rows = Core.objects.filter(host=engine.host_id).select_related("environment__engine")
    there = {core.index: core.environment for core in rows}
    if missing := [index for index in wanted if index not in there]:
        known = f"its cores are {format_cores(there)}" if there else "it has none yet: run detect_host"
        raise ValidationError({"cores": f"Host {engine.host} has no core {format_cores(missing)}; {known}."})
    for index in wanted:
        owner = there[index]
        if owner is not None and owner.engine_id != engine.pk:
            raise ValidationError({"cores": f"Core {index} belongs to environment {owner}; leave it out."})
    return frozenset(wanted)


def _read_devices(engine: Engine, text: str) -> frozenset[int]:
    wanted = [uuid for uuid in (piece.strip() for piece in text.split(",")) if uuid]
    there = dict(Device.objects.filter(host=engine.host_id).values_list("uuid", "pk"))
    for position, uuid in enumerate(wanted):
        if uuid in wanted[:position]:
            raise ValidationError({"devices": f"Device {uuid} is named twice."})
        if uuid not in there:
            known = f"its devices are {', '.join(there)}" if there else "it has none"
            raise ValidationError({"devices": f"Host {engine.host} has no device {uuid}; {known}."})
    return frozenset(there[uuid] for uuid in wanted)


def device_names(numbers: Numbers, uuids: Sequence[str] | None = None) -> str:
    """The devices by their short uuids; `none`, or `all`. `uuids`: theirs, where `uuids_of` has read them."""
    if numbers is None:
        return "all"
    return ", ".join(uuid[-8:] for uuid in (_uuids(numbers) if uuids is None else uuids)) or "none"


def uuids_of(slots: str) -> ArraySubquery:
    """For rows whose relation `slots` leads to slots: the uuids of their devices, read with the rows."""
    inside = Func(
        F("pk"),
        OuterRef(f"{slots}__devices"),
        arg_joiner=" <@ ",
        template="(%(expressions)s)",
        output_field=BooleanField(),
    )
    return ArraySubquery(Device.objects.filter(inside).order_by("pk").values("uuid"))


def first_of(some: SlotSet) -> str:
    """One thing of a set that is not empty, in words: rather a core than a device."""
    if some.cores is None:
        return "every core"
    if some.cores:
        return f"core {min(some.cores)}"
    return f"device {_uuids(some.devices or frozenset())[0]}"


def _uuids(numbers: frozenset[int]) -> list[str]:
    return list(Device.objects.filter(pk__in=numbers).order_by("pk").values_list("uuid", flat=True))


def release_slots(slots_id: int) -> None:
    """Their worker has ended: another may have them. What was reserved of them stays so until it is seen gone."""
    Slots.objects.filter(pk=slots_id, released_at__isnull=True).update(released_at=ClockTimestamp())


def queues_of_others(slots: Slots) -> list[str]:
    """The queues of the engine's other live workers."""
    others = Slots.objects.filter(engine=slots.engine_id, released_at__isnull=True).exclude(pk=slots.pk)
    return [other.queue for other in others.select_related("engine")]


def read_reach(environment_ids: Collection[int]) -> dict[int, Reach]:
    """By environment: what each live worker of its engine could ever get of it for one job. One statement."""
    found: dict[int, Reach] = {key: {} for key in environment_ids}
    for slots_id, environment_id, slug, most in all_rows(
        REACH_SQL.format(choice="r.environment_id = ANY(%s)"), [list(environment_ids)]
    ):
        found[environment_id].setdefault(slots_id, {})[slug] = most
    return found


def out_of_reach(reach: Reach, amounts: Mapping[str, int]) -> str | None:
    """Why no live worker can ever take a job with these amounts (by resource slug), in words; None when one can.

    None too when the engine has no live worker at all: that is a reason of its own.
    """
    slugs = next(iter(reach.values()), {})  # the same for all: they are the environment's
    best = {slug: max(one[slug] for one in reach.values()) for slug in slugs}
    asked = {slug: amount for slug, amount in amounts.items() if slug in best}
    if not reach or any(can_hold(one, asked) for one in reach.values()):
        return None
    short = [
        f"{amount} {slug}, at most {best[slug]}" for slug, amount in asked.items() if amount > best[slug]
    ]
    together = " and ".join(f"{amount} {slug}" for slug, amount in asked.items() if amount)
    return f"no live worker has slots for {'; '.join(short) or f'{together} together'}"


def can_hold(most: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    """Whether the slots of one worker, of which a job could get `most`, would do for these amounts."""
    return all(amount <= most[slug] for slug, amount in amounts.items() if slug in most)
