"""`computesite worker` against a real site; what is deployed is the agent's own program."""

import io
import json
import os
import socket
from datetime import UTC, datetime

import pytest
import yaml
from django.core.management import call_command
from typer.testing import CliRunner

from compute_site.core.db import database_now
from computesite import worker
from computesite.agent import Agent
from computesite.cli import app
from jobs.tokens import make_token
from tests.factories import make_account, make_site, make_user
from tests.faults.processes import eventually
from tests.fleet.remote import make_fleet
from workers.fleet.models import Fault, OwnerKey, RemoteWorker


@pytest.fixture
def fleet(transactional_db, settings):
    settings.FLEET_ENABLED = True
    user = make_user("ada")
    return make_fleet(make_site(), user, make_account("ada's", user))


@pytest.fixture
def cli(live_server, fleet, monkeypatch):
    def run(*arguments, user=None):
        _, token = make_token(user or fleet.user, ["fleet"])
        monkeypatch.setenv("COMPUTESITE_TOKEN", token)
        return CliRunner().invoke(app, ["worker", *arguments])

    monkeypatch.setenv("COMPUTESITE_URL", live_server.url)
    monkeypatch.setenv("COLUMNS", "300")
    return run


def words(result):
    return " ".join(result.output.split())


def test_status_tells_of_every_worker(cli, fleet, settings):
    there, new = fleet.worker(), fleet.worker(active=False)
    new.register(provider="mine")
    shown = cli("status")
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.output.splitlines()]
    assert lines[0] == ["worker", "owner", "provider", "status", "faults", "last", "seen"]
    assert lines[1][:5] == [there.row.short_id, there.owner.short_id, "-", "active", "0"]
    assert lines[2] == [new.row.short_id, new.owner.short_id, "mine", "pending", "0", "never"]
    told = json.loads(cli("status", "--json").output)
    assert [row["id"] for row in told] == [there.id, new.id]
    assert set(told[0]) >= {"id", "owner", "provider", "status", "faults", "last_seen"}
    settings.FLEET_ENABLED = False
    refused = cli("status")
    assert (refused.exit_code, "FLEET_ENABLED is off" in refused.output) == (1, True)


def test_age_is_told_in_one_unit():
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for moment, told in [
        (None, "never"),
        ("2026-01-31T12:00:01Z", "0 s ago"),
        ("2026-01-31T11:58:01Z", "119 s ago"),
        ("2026-01-31T11:00:00Z", "60 min ago"),
        ("2026-01-31T10:00:00Z", "2 h ago"),
        ("2026-01-01T12:00:00Z", "30 d ago"),
    ]:
        assert worker.age(moment, now) == told


def test_who_may_retire(cli, fleet):
    manager, operator = make_user("manager"), make_user("operator")
    operator.is_staff = operator.is_superuser = True
    operator.save()
    first = fleet.worker(account=make_account("hers", manager))
    second = fleet.worker()
    refused = cli("retire", first.id)
    assert (refused.exit_code, "Only its owner" in refused.output) == (1, True)
    assert cli("retire", second.id, user=manager).exit_code == 1
    assert cli("retire", "12345678").output.strip() == "There is no worker 12345678."
    assert set(RemoteWorker.objects.values_list("status", flat=True)) == {"active"}
    retired = cli("retire", first.row.short_id, user=manager)
    assert (retired.exit_code, "retired" in retired.output) == (0, True)
    assert json.loads(cli("retire", second.id, "--json", user=operator).output)["status"] == "retired"
    assert set(RemoteWorker.objects.values_list("status", flat=True)) == {"retired"}


@pytest.fixture
def config(live_server, fleet, tmp_path):
    url = "http://127.0.0.1:1"  # the command line knows better
    call_command("prepare_fleet", "north", site_url=url, output=tmp_path, stdout=io.StringIO())
    return tmp_path / "north" / "agent.yaml"


def alive(pid):
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


@pytest.mark.engine
def test_deploy_starts_an_agent_that_ends_when_it_is_retired(cli, config, fleet):
    done = cli("deploy", "--provider", "local", "--config", str(config), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    row = RemoteWorker.objects.get(public_id=told["id"])
    assert (told["status"], row.status, alive(told["pid"])) == ("active", "active", True)
    member = fleet.user
    row.owner.account.memberships.create(user=member, role="owner")
    assert cli("retire", row.short_id).exit_code == 0
    eventually(lambda: not alive(told["pid"]), 20, words="it hears that it is retired")
    again = cli("deploy", "--provider", "local", "--config", str(config))
    assert again.exit_code == 1
    assert "The agent ended with 0:" in words(again)
    assert "retired" in words(again)


@pytest.mark.engine
def test_deploy_says_why_an_agent_is_not_let_in(cli, config):
    OwnerKey.objects.update(revoked_at=database_now())
    refused = cli("deploy", "--provider", "local", "--config", str(config))
    assert refused.exit_code == 1
    assert "The agent ended with 1:" in words(refused)
    assert "unknown_owner" in words(refused)
    assert not RemoteWorker.objects.exists()


def test_deploy_ends_an_agent_that_is_not_active_in_time(cli, config, monkeypatch, fleet):
    monkeypatch.setattr(worker, "ACTIVE_SECONDS", 1.0)
    pids = []
    real = Agent._end

    def end(agent):
        pids.append(agent.pid)
        real(agent)

    monkeypatch.setattr(Agent, "_end", end)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an engine that never answers
        settings = yaml.safe_load(config.read_text()) | {
            "engine": f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        }
        config.write_text(yaml.safe_dump(settings))
        refused = cli("deploy", "--provider", "local", "--config", str(config))
    assert refused.exit_code == 1
    assert "not active within 1 s and was ended: it has not registered" in words(refused)
    assert len(pids) == 1
    assert not alive(pids[0])


def test_deploy_refuses_before_anything_is_started(cli, config, tmp_path):
    for arguments, said in [
        (("--provider", "lium", "--config", str(config)), "--provider lium is not there yet"),
        (("--provider", "targon", "--config", str(config)), "--provider targon is not there yet"),
        (("--provider", "mine", "--config", str(config)), "'mine' is none of local"),
        (("--provider", "local", "--config", str(tmp_path / "none.yaml")), "No such file"),
        (
            ("--provider", "local", "--config", str(config), "--checkout", str(tmp_path)),
            "there is no workers",
        ),
        (
            ("--provider", "local", "--config", str(config), "--python", "/nowhere"),
            "--python /nowhere: No such",
        ),
    ]:
        refused = cli("deploy", *arguments)
        assert refused.exit_code == 1
        assert said in words(refused), refused.output
    assert not RemoteWorker.objects.exists()
    assert not Fault.objects.exists()
