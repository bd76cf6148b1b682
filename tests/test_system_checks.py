"""Django's own checks run before the first migration: they may not need a table."""

from django.core import checks


def test_the_checks_pass_without_a_database():
    # No `db` fixture: a query raises here, as it would against an empty database.
    assert [problem for problem in checks.run_checks() if problem.level >= checks.WARNING] == []
