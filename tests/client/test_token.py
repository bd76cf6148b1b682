"""`computesite token` against a real site."""

import pytest
from typer.testing import CliRunner

from computesite.cli import app
from jobs.models import Token
from tests.factories import make_user


@pytest.fixture
def cli(live_server, transactional_db, monkeypatch):
    make_user("ada")
    monkeypatch.setenv("COMPUTESITE_URL", live_server.url)
    monkeypatch.delenv("COMPUTESITE_TOKEN", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    return lambda *arguments, typed="": CliRunner().invoke(app, ["token", *arguments], input=typed)


def test_a_token_is_made_used_and_voided(cli, monkeypatch):
    wanted = ("--scope", "read", "--scope", "fleet", "--name", "nightly", "--days", "2")
    made = cli("create", "--user", "ada", *wanted, typed="secret\n")
    assert made.exit_code == 0, made.output
    row = Token.objects.get()
    assert (row.name, row.scopes, (row.expiry - row.created).days) == ("nightly", ["fleet", "read"], 1)
    assert made.stdout.strip().startswith("cs_")
    assert "secret" not in made.output
    monkeypatch.setenv("COMPUTESITE_TOKEN", made.stdout.strip())
    assert cli("revoke").exit_code == 0
    assert not Token.objects.exists()
    assert cli("revoke").exit_code == 1


def test_without_more_it_reads_and_submits_for_ever(cli):
    assert cli("create", "--user", "ada", typed="secret\n").exit_code == 0
    row = Token.objects.get()
    assert (row.scopes, row.expiry) == (["read", "submit"], None)


def test_what_the_site_refuses_is_told(cli, monkeypatch):
    wrong = cli("create", "--user", "ada", typed="guess\n")
    assert (wrong.exit_code, "Invalid username/password" in wrong.output) == (1, True)
    unknown = cli("create", "--user", "ada", "--scope", "root", typed="secret\n")
    assert (
        unknown.exit_code,
        "“root” is no scope; there are read, submit, admin, fleet." in unknown.output,
    ) == (1, True)
    monkeypatch.delenv("COMPUTESITE_URL")
    unset = cli("create", "--user", "ada", typed="secret\n")
    assert (unset.exit_code, "Set COMPUTESITE_URL." in unset.output) == (1, True)
    assert not Token.objects.exists()
