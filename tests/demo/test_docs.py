"""What the documents list is what the code has: settings, states, end reasons, words, paths."""

import ast
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from environments.models import reservation
from jobs.billing.models import hold
from jobs.end_reasons import END_REASONS
from jobs.models import attempt, job
from providers.models import pod
from workers import models as worker
from workers.fleet.models import owner as fleet_owner
from workers.fleet.models import unit as fleet_unit

ROOT = Path(__file__).parents[2]
MACHINES: dict[str, Any] = {
    "Job": job.TRANSITIONS,
    "Attempt": attempt.TRANSITIONS,
    "Reservation": reservation.TRANSITIONS,
    "Hold": hold.TRANSITIONS,
    "Worker": worker.TRANSITIONS,
    "Pod": pod.TRANSITIONS,
    "Remote worker": fleet_owner.TRANSITIONS,
    "Unit": fleet_unit.UNIT_TRANSITIONS,
    "Replica": fleet_unit.REPLICA_TRANSITIONS,
    "Audit": fleet_unit.AUDIT_TRANSITIONS,
}
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def read(path: str) -> str:
    return (ROOT / path).read_text()


def section(text: str, title: str) -> str:
    """The text below a second-level heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"no section {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row below its header, without code marks."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return [row for position, row in enumerate(cells) if position > 1]


def settings_read() -> set[str]:
    return set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', read("compute_site/settings.py")))


def test_every_setting_is_in_the_example_and_no_other():
    listed = re.findall(r"^#?([A-Z_]+)=", read(".env.example"), re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == settings_read()


def test_every_setting_reaches_the_node_or_is_its_own():
    """Paths, socket and secret are fixed by the node; a debugging site is no node."""
    own = {"DATA_DIR", "STATE_DIR", "CACHE_DIR", "LAUNCHER", "PULSE_FILE", "STATIC_ROOT"}
    own |= {"SECRET_KEY", "DOCKER_HOST", "DEBUG"}
    told = yaml.safe_load(read("docker/compose.yml"))["services"]["web"]["environment"]
    assert settings_read() - own == set(told) - {"ENGINE"}


def test_every_setting_is_in_the_operations_table():
    table = section(read("docs/operations.md"), "Settings")
    assert {row[0] for row in rows(table)} == settings_read()


def defaults_read() -> dict[str, str]:
    """The defaults of the settings as one writes them in an environment; those that are computed are left out."""
    calls = [
        node for node in ast.walk(ast.parse(read("compute_site/settings.py"))) if isinstance(node, ast.Call)
    ]
    found = {}
    for call in calls:
        default = {keyword.arg: keyword.value for keyword in call.keywords}.get("default")
        if default is not None and ast.unparse(call.func).startswith("env."):
            with suppress(NameError):
                value = eval(ast.unparse(default), {"__builtins__": {}})
                found[ast.literal_eval(call.args[0])] = (
                    ",".join(value) if isinstance(value, list) else str(value)
                )
    return found


def test_the_defaults_in_the_operations_table_are_the_code_s():
    table = {row[0]: row[1] for row in rows(section(read("docs/operations.md"), "Settings"))}
    words = {
        "SECRET_KEY": "insecure",
        "CSRF_TRUSTED_ORIGINS": "empty",
        "STATIC_ROOT": "none",
        "DOCKER_COMPUTE_ENVIRONMENTS": "empty",
        "PROVIDER_KEY_RING": "empty",
        "FLEET_INTERNAL_TOKEN": "empty",
        "CACHE_DIR": "empty",
        "IMAGE_SCAN_COMMAND": "empty",
        "PULSE_FILE": "empty",
        "BENCHMARK_CURRENCY": "empty",
        "BENCHMARK_CORE_PRICE": "empty",
        "BENCHMARK_USERS": "empty",
        "BENCHMARK_ADDRESSES": "empty",
        "NETWORK_CLOSED": "empty",
    }
    real = defaults_read()
    assert len(real) > 20
    for name, value in real.items():
        assert table[name] == words.get(name, value.lower() if value in ("True", "False") else value), name


@pytest.mark.parametrize("machine", MACHINES)
def test_the_state_tables_are_the_transitions(machine):
    told = {
        (source.strip(), target.strip())
        for sources, targets, *_ in rows(section(read("docs/state-machines.md"), machine))
        for source in sources.split(",")
        for target in targets.split(",")
    }
    real = {(str(source), str(target)) for source, targets in MACHINES[machine].items() for target in targets}
    assert told == real


def test_the_end_reasons_are_the_table():
    told = {row[0]: row[1:4] for row in rows(section(read("docs/state-machines.md"), "End reasons"))}
    yes = {True: "yes", False: "no"}
    assert told == {
        name: [reason.status, yes[reason.retryable], yes[reason.billable]]
        for name, reason in END_REASONS.items()
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_modules_and_links_of_a_document_exist(document):
    text = document.read_text()
    named = re.findall(
        r"`((?:compute_site|environments|jobs|workers|providers|client|docker|docs|requirements|tests)/[\w./-]+)`",
        text,
    )
    missing = [path for path in named if not (ROOT / path).exists()]
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    missing += [link for link in links if not (document.parent / link).exists()]
    assert not missing
