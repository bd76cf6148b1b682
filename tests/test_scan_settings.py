"""What the settings make of the operator's scanner; each reading needs a process of its own."""

import os
import subprocess
import sys

import pytest


def read(command: str, **others: str) -> subprocess.CompletedProcess[str]:
    program = "from compute_site import settings; print(settings.IMAGE_SCAN_COMMAND)"
    variables = {**os.environ, "IMAGE_SCAN_COMMAND": command, **others}
    return subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", []),
        (
            "scan --level 'HIGH CRITICAL' --image={image}",
            ["scan", "--level", "HIGH CRITICAL", "--image={image}"],
        ),
    ],
)
def test_words_as_a_shell_would_split_them(command: str, words: list[str]):
    assert read(command).stdout.strip() == str(words)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("scan 'x {image}", "IMAGE_SCAN_COMMAND cannot be split into words: No closing quotation."),
        ("trivy image", "IMAGE_SCAN_COMMAND names no image; write {image} where its id is to stand."),
    ],
)
def test_what_is_no_scanner_is_said_at_once(command: str, says: str):
    found = read(command)
    assert found.returncode != 0
    assert says in found.stderr


@pytest.mark.parametrize("wrong", [{"IMAGE_SCAN_SECONDS": "0"}, {"IMAGE_SCAN_KEPT_SECONDS": str(2**40)}])
def test_times_that_no_scan_can_have_are_said_at_once(wrong: dict[str, str]):
    """The database reckons with the second: every job would have ended by a fault."""
    found = read("", **wrong)
    assert found.returncode != 0
    assert "IMAGE_SCAN_SECONDS is at least 1" in found.stderr
