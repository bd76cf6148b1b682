"""The same rule gives the same message through every door, beside the right field, and nothing is written.

Each row is one rule with a value that breaks it; `tests/environments/doors*.py` submit it everywhere.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from environments.models import Engine, Environment
from tests.environments import doors
from tests.environments.conftest import make_engine, make_host
from tests.environments.doors_admin import ADD, AdminForm
from tests.environments.doors_files import by_file, by_rest, by_settings
from tests.environments.importing.conftest import everything
from tests.environments.test_admin import fields_of
from tests.factories import client_of

FREE = {"fields": {}, "resources": {"cpu": {"total": 1}, "ram": {"total": 512}, "disk": {"total": 512}}}
GPU = {"devices": ["GPU-rack-a-0"]}
TWO = {**GPU, "max": 1}
FILES = ("file", "settings", "rest")
# Why a door cannot express a value.
TEXT = "a form knows text only"
CODE = "a mapping or an argument of Python has each name once, and cannot be missing"
JSON = "JSON has no such number"
LIST = "a choice of a list is there once"
COUNT = "code gives the devices, their number follows"
NO_ROW = "no single row can break it"


@dataclass(frozen=True)
class Row:
    """What is put into a plain offer (`start` first, which is right), and what every door must say at `at`.

    `cannot`: doors that cannot express it, and why. `constraint`: what refuses it in the database.
    """

    rule: int
    wrong: dict[str, Any]
    at: str
    says: str
    constraint: str = ""
    start: dict[str, Any] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)


def at_field(rule: int, name: str, value: Any, says: str, constraint: str = "", **cannot: str) -> Row:
    """A row about one field of the environment."""
    return Row(rule, {f"fields.{name}": value}, name, says, constraint, cannot=cannot)


def of_free(rule: int, name: str, value: Any, says: str, constraint: str = "", **cannot: str) -> Row:
    """A row about one field of the free tier."""
    path = f"free_tier.{name}"
    return Row(rule, {f"free.fields.{name}": value}, path, says, constraint, {"free": FREE}, cannot)


def amount(rule: int, path: str, value: Any, says: str, constraint: str = "", **cannot: str) -> Row:
    """A row about one amount of a resource."""
    return Row(rule, {path: value}, path, says, constraint, cannot=cannot)


def price(value: Any, says: str, constraint: str = "", **cannot: str) -> Row:
    """A row about a price."""
    return Row(10, {"prices.cpu": value}, "prices.cpu", says, constraint, cannot=cannot)


def constraint(wrong: dict[str, Any], name: str, says: str, **cannot: str) -> Row:
    """A row about a constraint of gpu on ram."""
    one = {"resource": "gpu", "target": "ram", "min": 1, **wrong}
    start = {"resources.gpu": GPU, "prices": {"gpu": 1}}
    target = one["target"] or one.get("target_kind", "")
    path = f"constraints.gpu.{target}.per_unit.{name}"
    return Row(13, {"constraints": [one]}, path, says, start=start, cannot={"row": NO_ROW, **cannot})


WHOLE = "enter a whole number, 0 or more."
ROWS = [
    Row(2, {"resources.disk": None}, "resources", "There is no disk; add a resource of kind disk with its total.",
        cannot={"code": CODE, "row": NO_ROW}),
    Row(2, {"resources.disk.total": 0}, "resources.disk.total", "Found 0; an environment needs disk",
        "resource_disk_positive", cannot={"row": "its max is more than it then"}),
    Row(3, {"prices": {}}, "price_lists", "There is neither a price nor a free tier", cannot={"row": NO_ROW}),
    at_field(4, "storage_expiry", 3599, "3599 s is shorter than max_job_duration (3600 s); results must outlive",
             "environment_expiry_covers_duration"),
    of_free(4, "storage_expiry", 3599, "3599 s is shorter than max_job_duration (3600 s)",
            "free_tier_expiry_covers_duration"),
    Row(5, {"resources.ram.min": 9, "resources.ram.max": 5}, "resources.ram.min", "9 is more than the max of 5",
        "resource_min_max_total_ordered"),
    amount(5, "resources.ram.max", 2049, "2049 is more than the total of 2048", "resource_min_max_total_ordered"),
    amount(5, "resources.ram.total", -1, f"Found -1; {WHOLE}", "environments_resource_total_check"),
    amount(5, "resources.ram.min", -1, f"Found -1; {WHOLE}", "environments_resource_min_check"),
    Row(5, {"free.resources.ram.min": 9, "free.resources.ram.max": 5}, "free_tier.resources.ram.min",
        "9 is more than the max of 5", "free_resource_min_max_total_ordered", {"free": FREE},
        {"code": "it gives totals of the free tier only"}),
    Row(5, {"free.resources.ram.total": 2049}, "free_tier.resources.ram.total",
        "2049 is more than the resource's total of 2048", "", {"free": FREE}),
    Row(5, {"free.resources.ram.max": 513}, "free_tier.resources.ram.max", "513 is more than the total of 512",
        "free_resource_min_max_total_ordered", {"free": FREE}, {"code": "it gives totals of the free tier only"}),
    Row(5, {"free.resources.cpu.total": -1}, "free_tier.resources.cpu.total", f"Found -1; {WHOLE}",
        "environments_freeresource_total_check", {"free": FREE}),
    at_field(6, "min_job_duration", 3601, "3601 s is longer than max_job_duration (3600 s)",
             "environment_durations_ordered"),
    of_free(6, "min_job_duration", 3601, "3601 s is longer than max_job_duration (3600 s)",
            "free_tier_durations_ordered"),
    Row(7, {"cores": "4,9"}, "cores", "rack-a has no core 9; it has 0-7.", cannot={"row": NO_ROW}),
    Row(7, {"cores": "3-4"}, "cores", "Core 3 belongs to local/main; take it out there first.",
        cannot={"row": "a core has one column for its environment"}),
    Row(7, {"cores": "4,4"}, "cores", "Core 4 is named twice.", cannot={"row": NO_ROW}),
    Row(7, {"cores": "5-4"}, "cores", "“5-4” runs backwards; write 4-5.", cannot={"row": NO_ROW}),
    Row(7, {"cores": "4;5"}, "cores", "“4;5” is no core or range of cores", cannot={"row": NO_ROW}),
    Row(8, {"resources.ram.total": 16_385}, "resources.ram.total", "16385 MiB is more than the host's 16384 MiB",
        cannot={"row": NO_ROW, **dict.fromkeys(FILES, "kept, with a note")}),
    Row(8, {"resources.disk.total": 100_001}, "resources.disk.total",
        "100001 MiB is more than the host's 100000 MiB",
        cannot={"row": NO_ROW, **dict.fromkeys(FILES, "kept, with a note")}),
    Row(9, {"resources.more": GPU}, "resources.more.devices",
        "GPU-rack-a-0 is in gpu of this environment already; a device is in one of them.",
        start={"resources.gpu": GPU}, cannot={"row": NO_ROW}),
    Row(9, {"resources.gpu": {"devices": ["GPU-rack-b-0"]}}, "resources.gpu.devices",
        "is on host rack-b, the environment on rack-a", cannot={"row": NO_ROW}),
    Row(9, {"resources.gpu": {**GPU, "total": 2}}, "resources.gpu.total",
        "The total is 2, but 1 devices are chosen; make both the same.", cannot={"code": COUNT, "row": NO_ROW}),
    Row(9, {"resources.gpu": {**GPU, "sharing": "exclusive"}}, "resources.gpu.devices",
        "is in local/main too; make both resources shared", cannot={"code": "it shares all devices", "row": NO_ROW}),
    Row(10, {"prices": {"tpu": 1}}, "prices.tpu", "There is no resource tpu; there are cpu, disk, ram.",
        cannot={"row": NO_ROW}),
    price(-1, "Found -1; enter a number, 0 or more.", "price_not_negative"),
    price(Decimal("NaN"), "Found NaN; enter a number, 0 or more.",
          **dict.fromkeys(FILES, JSON)),
    price(Decimal("Infinity"), "Found Infinity; enter a number, 0 or more.", **dict.fromkeys(FILES, JSON)),
    price(Decimal("0." + "0" * 18 + "1"), "; enter at most 18 decimals."),
    price(Decimal(10) ** 20, "Found 100000000000000000000; enter at most 20 digits before the point."),
    price("free", "Found “free”; enter a number, 0 or more."),
    Row(10, {"again": [("cpu", 2)]}, "prices", "cpu has two prices; keep one.",
        cannot={"code": CODE, "row": NO_ROW}),
    Row(10, {"empty": "points"}, "price_lists.points.prices", "Found no price; add one, or take the price list out.",
        cannot={"code": "no prices are no list", "row": NO_ROW}),
    Row(10, {"lists": 2}, "price_lists.credit", "This environment already has a price list in this currency.",
        cannot={"code": CODE, "row": NO_ROW}),
    at_field(11, "max_job_duration", 60.5, f"Found 60.5; {WHOLE}"),
    at_field(11, "max_job_duration", "1 h", f"Found “1 h”; {WHOLE}"),
    at_field(11, "storage_expiry", 2**31, "Found 2147483648; enter at most 2147483647."),
    at_field(11, "max_queue_wait", 0, "Found 0; enter seconds greater than 0", "environment_durations_positive"),
    at_field(11, "min_job_duration", 0, "Found 0; enter whole seconds greater than 0.",
             "environment_durations_positive"),
    at_field(11, "max_jobs", -1, f"Found -1; {WHOLE}", "environments_environment_max_jobs_check"),
    of_free(11, "max_jobs", -1, f"Found -1; {WHOLE}", "environments_freetier_max_jobs_check"),
    of_free(11, "min_job_duration", 0, "Found 0; enter whole seconds greater than 0.", "free_tier_durations_ordered"),
    at_field(12, "max_job_duration", "3600", f"Found “3600”; {WHOLE}", admin=TEXT),
    at_field(12, "max_jobs", True, f"Found true; {WHOLE}", admin=TEXT),
    Row(12, {"resources.licence": {"kind": "counter", "total": "3"}}, "resources.licence.total",
        f"Found “3”; {WHOLE}", cannot={"admin": TEXT, "row": "its max follows it"}),
    at_field(12, "labels", {"gpu": ""}, "gpu: found ''; enter a text of 1 to 255 bytes on one line."),
    Row(12, {"more": [("ram", {"total": 2048})]}, "resources.ram",
        "This environment already has a resource with this slug.", cannot={"code": CODE, "row": NO_ROW}),
    Row(12, {"more": [("memory", {"kind": "ram", "total": 2048})]}, "resources.memory.kind",
        "An environment has at most one cpu, one ram and one disk resource.", cannot={"code": CODE, "row": NO_ROW}),
    Row(12, {"access": ["İ" * 255]}, "access.value", "Ensure this value has at most 255 characters (it has 510).",
        cannot={"code": "it makes no access rules", "row": "tests/environments/test_access_rules.py"}),
    constraint({"target": "tpu"}, "target", "There is no resource tpu; there are cpu, disk, gpu, ram."),
    constraint({"target": "gpu"}, "target", "gpu itself; its own min and max say how much one job gets of it."),
    constraint({"min": 9, "max": 8}, "min", "9 is more than the max of 8; lower it or raise the max."),
    constraint({"min": -1}, "min", f"Found -1; {WHOLE}"),
    constraint({"min": 4096}, "min", "Any gpu takes at least 4096 MiB of ram, at most 2048 MiB may be per job"),
    constraint({"target_kind": "ram"}, "target", "Found both; name one resource as the target, or one kind."),
    Row(16, {"cores": "", "resources.cpu.total": 5}, "cores", "5 cores are asked, 4 of the 8 of rack-a are free",
        cannot={"row": NO_ROW}),
    Row(16, {"cores": "", "resources.cpu.total": 1.5}, "cores", f"Found 1.5; {WHOLE}", cannot={"row": NO_ROW}),
    Row(16, {"cores": "", "resources.cpu.total": -1}, "cores", f"Found -1; {WHOLE}", cannot={"row": NO_ROW}),
    Row(16, {"cores": "", "resources.cpu.total": 0}, "cores", "Found 0; an environment needs at least one core.",
        cannot={"row": NO_ROW}),
]  # fmt: skip


@pytest.fixture
def other(environment, host) -> Engine:
    """A second engine on the host, whose first four cores and both devices `local/main` offers; rack-b is elsewhere."""
    make_host("rack-b")
    return make_engine(host, "other")


@pytest.fixture
def every_door(browser, unrendered, settings, tmp_path) -> dict[str, Any]:
    """By name; each takes an engine and an offer."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    empty = fields_of(browser.get(ADD))
    return {
        "code": doors.by_code,
        "admin": AdminForm(browser, empty),
        "file": by_file(tmp_path),
        "settings": by_settings(settings),
        "rest": by_rest(client_of(get_user_model().objects.get(username="olga"))),
    }


def offer_of(row: Row, *changes: dict[str, Any]) -> doors.Offer:
    offer = doors.plain_offer()
    for each in (row.start, *changes):
        for path, value in deepcopy(each).items():
            doors.changed(offer, path, value)
    return offer


def whats_wrong(row: Row, engine: Engine, every_door: dict[str, Any]) -> str:
    """What the doors say of this row that they should not; empty when all is well."""
    said = {
        name: door(engine, offer_of(row, row.wrong)).get(row.at)
        for name, door in every_door.items()
        if name not in row.cannot
    }
    alike = all(texts == said["admin" if "admin" in said else "code"] for texts in said.values())
    right = all(texts and row.says in " ".join(texts) for texts in said.values())
    return "" if alike and right and len(said) > 1 else f"{row}: {said}"


def wrong_as_rows(row: Row, environment: Environment) -> str:
    """The same of the rows of a right environment."""
    found, refusing = doors.by_row(environment, row.wrong)
    right = row.says in " ".join(found.get(row.at, ())) and refusing == row.constraint
    return "" if right else f"{row}: {found}, refused by {refusing!r}"


@pytest.mark.parametrize("rule", sorted({row.rule for row in ROWS}))
def test_every_door_says_the_same(rule: int, other: Engine, every_door: dict[str, Any]):
    rows = [row for row in ROWS if row.rule == rule]
    before = everything()
    found = [whats_wrong(row, other, every_door) for row in rows]
    assert everything() == before
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize("free", [False, True], ids=["paid", "free"])
def test_every_row_and_its_constraint(free: bool, other: Engine):
    rows = [row for row in ROWS if "row" not in row.cannot and ("free" in row.start) == free]
    assert doors.by_code(other, offer_of(rows[0])) == {}
    before = everything()
    found = [wrong_as_rows(row, Environment.objects.get(slug="web")) for row in rows]
    assert everything() == before
    assert not any(found), "\n".join(filter(None, found))
