"""Django's own checks run before the first migration: they may not need a table."""

import os
import subprocess
import sys

import pytest
from django.core import checks


def test_the_checks_pass_without_a_database():
    # No `db` fixture: a query raises here, as it would against an empty database.
    assert [problem for problem in checks.run_checks() if problem.level >= checks.WARNING] == []


@pytest.mark.parametrize(
    "wrong",
    [{"SITE_ID": value} for value in ("", "a/b", "A", "a-b", "a" * 13, "a\n")]
    + [{"NETWORK_RESOLVERS": value} for value in ("", "resolver.example", "1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4")]
    + [{"NETWORK_CLOSED": "10.0.0.1/8"}]
    + [{"UID_FIRST": "0"}, {"UID_COUNT": "0"}, {"UID_FIRST": str(2**32)}],
    ids=str,
)
def test_a_site_that_could_not_keep_its_things_apart_does_not_start(wrong: dict[str, str]) -> None:
    command = [sys.executable, "-c", "import compute_site.settings"]
    done = subprocess.run(command, env=os.environ | wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"ImproperlyConfigured: {next(iter(wrong)).partition('_')[0]}" in done.stderr
