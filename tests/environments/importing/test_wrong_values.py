"""Every wrong value is refused by its path, and nothing is written."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from environments.importing import Choice, import_configuration
from tests.environments.importing.conftest import (
    TOKEN,
    everything,
    fees,
    gpu,
    nested,
    offer,
    refused,
    resource,
    run,
)


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"resources": [resource("cpu", "4"), resource("disk", 1)]}, "resources[0].total", "Found “4”"),
        ({"resources": [resource("cpu", True), resource("disk", 1)]}, "resources[0].total", "Found true"),
        (
            {"resources": [resource("ram", 0.3), resource("disk", 1)]},
            "resources[0].total",
            "whole number of MiB",
        ),
        (
            {"resources": [resource("ram", "4 apples"), resource("disk", 1)]},
            "resources[0].total",
            "such as 512MiB",
        ),
        ({"resources": [resource("disk", 10**30)]}, "resources[0].total", "at most"),
        pytest.param(
            *({"resources": [resource("disk", "9" * 5000 + "MiB")]}, "resources[0].total", "such as 512MiB"),
            id="5000 digits",
        ),
        ({"resources": [resource("disk", "\u0663MiB")]}, "resources[0].total", "such as 512MiB"),
        (
            {"fees": {"\u0663": [{"feeToken": TOKEN, "prices": []}]}},
            "fees.\u0663[0]",
            "a chain id is a number",
        ),
        (
            {"access": {"accessLists": [{"\u0663": ["0x1"]}]}},
            "access.accessLists[0].\u0663",
            "a chain id is a number",
        ),
        (
            {"resources": [resource("cpu", 2, type="gpu"), resource("disk", 1)]},
            "resources[0].type",
            "contradicts the id",
        ),
        (
            {"resources": [gpu("g", "GPU-1") | {"type": "ram"}, resource("disk", 1)]},
            "resources[0].type",
            "contradicts its",
        ),
        (
            {"resources": [gpu("g", "GPU-1") | {"total": 2}, resource("disk", 1)]},
            "resources[0].total",
            "but 1 devices are chosen",
        ),
        (
            {"resources": [resource("g", 1, type="gpu"), resource("disk", 1)]},
            "resources[0].init",
            "Names no device",
        ),
        (
            {"resources": [resource("x", type="y"), resource("disk", 1)]},
            "resources[0].total",
            "a counter needs one",
        ),
        (
            {"resources": [resource("disk", 1, max=2)]},
            "resources[0].max",
            "2048 is more than the total of 1024",
        ),
        ({"resources": "none"}, "resources", "a list belongs here"),
        ({"resources": [resource("disk", 1), 5]}, "resources[1]", "an object belongs here"),
        ({"cpuCores": [0, 0]}, "cpuCores", "named twice"),
        ({"cpuCores": []}, "cpuCores", "Names no core"),
        ({"cpuCores": {"a": 1}}, "cpuCores", "a list of cores"),
        ({"maxJobDuration": 1.5}, "maxJobDuration", "a whole number"),
        ({"minJobDuration": 0}, "minJobDuration", "Found 0"),
        ({"maxJobs": -1}, "maxJobs", "Found -1"),
        ({"description": 5}, "description", "text belongs here"),
        ({"fees": fees(cpu=-1)}, "fees.1[0].prices[0].price", "0 or more"),
        ({"fees": fees(cpu="1")}, "fees.1[0].prices[0].price", "a number"),
        ({"fees": fees(ram=1e-15)}, "fees.1[0].prices[0].price", "at most 18 decimals"),
        ({"fees": {"eth": [{"feeToken": TOKEN, "prices": []}]}}, "fees.eth[0]", "a chain id is a number"),
        (
            {"free": {"resources": [resource("cpu", max=3)]}},
            "free.resources[0].total",
            "3 is more than the resource's",
        ),
        (
            {"free": {"resources": [resource("gpu", max=1)]}},
            "free.resources[0].id",
            "There is no resource gpu",
        ),
        ({"free": {"storageExpiry": 1}}, "free.storageExpiry", "shorter"),
        ({"access": {"addresses": [5]}}, "access.addresses[0]", "text belongs here"),
        ({"access": {"accessLists": [{"x": ["0x1"]}]}}, "access.accessLists[0].x", "a chain id is a number"),
        ({"id": "---"}, "id", "write letters"),
        ({"id": "x" * 64}, "id", "63"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_by_their_path(engine, change: dict[str, Any], path: str, words: str):
    refused(nested(offer(**change) | change), f"[0].environments[0].{path}", words)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"5", b"[]", b'[{"a": 1, "a": 2}]', b"[NaN]", b"\xff", b'["x"]', b"[" * 99]
)
def test_what_is_no_configuration(engine, body: bytes):
    before = everything()
    with pytest.raises(ValidationError):
        import_configuration(body, Choice())
    assert everything() == before


def test_all_that_is_wrong_is_told_at_once(engine):
    with pytest.raises(ValidationError) as error:
        run(nested(offer("a", maxJobs=-1), offer("a", description=1), imageRetentionDays="x"))
    assert set(error.value.message_dict) == {
        "[0].imageRetentionDays",
        "[0].environments[0].maxJobs",
        "[0].environments[1].description",
        "[0].environments[1].id",
    }
