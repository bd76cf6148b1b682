"""`manage.py prepare_fleet`, and the fleet in the admin."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from environments.models import Environment
from environments.setup import create_environment
from tests.fleet.remote import through_django
from workers.fleet.agent.config import Config, read_config
from workers.fleet.client import SignedClient
from workers.fleet.models import Audit, FleetPolicy, Owner, RemoteWorker, Unit
from workers.fleet.passes import run_pass
from workers.fleet.setup import create_fleet_environment, create_owner

pytestmark = pytest.mark.django_db


def prepare(folder):
    call_command("prepare_fleet", "north", "south", site_url="http://testserver", output=folder, lies="south")


def test_what_it_writes_lets_an_agent_in(site, settings, tmp_path):
    with pytest.raises(CommandError, match="FLEET_ENABLED"):
        prepare(tmp_path)
    assert not Owner.objects.exists()
    settings.FLEET_ENABLED = True
    prepare(tmp_path)
    config = read_config(tmp_path / "north" / "agent.yaml", {})
    assert stat.S_IMODE(config.key_file.stat().st_mode) == 0o600
    client = SignedClient(config.site_url, config.site_id, config.key(), through_django)
    assert client.call("POST", "/workers/register", config.binding())["status"] == "pending"
    assert read_config(tmp_path / "south" / "agent.yaml", {}).alter_outputs
    prepare(tmp_path)
    assert Owner.objects.count() == 2
    assert RemoteWorker.objects.get().status == "retired"


def test_every_page_of_the_admin_opens(fleet, client):
    client.force_login(get_user_model().objects.create_superuser("root"))
    a, b = fleet.worker(), fleet.worker()
    fleet.job()
    run_pass()
    a.fail(a.pull()[0])
    run_pass()
    again = a.pull()[0]
    a.client.call("POST", f"/workers/assignments/{again['id']}/progress",
                  {"token": again["token"], "note": "half", "log": "<b>step 1</b>"})  # fmt: skip
    page = client.get(f"/admin/fleet/unit/{Unit.objects.get().pk}/change/").content.decode()
    assert '<pre class="cs-log">&lt;b&gt;step 1&lt;/b&gt;</pre>' in page
    assert "<td>half</td>" in page
    a.report(again, text=b"1")
    b.report(b.pull()[0], text=b"2")
    for model in (Owner, FleetPolicy, RemoteWorker, Unit, Audit):
        page = f"/admin/fleet/{model._meta.model_name}/"
        assert client.get(page).status_code == 200
        assert client.get(f"{page}{model.objects.values_list('pk', flat=True)[0]}/change/").status_code == 200
    assert client.get("/admin/fleet/fault/").status_code == 200
    page = client.get(f"/admin/fleet/unit/{Unit.objects.get().pk}/change/").content.decode()
    job = Unit.objects.get().attempt.job
    assert f'/admin/jobs/job/{job.pk}/change/">{job.short_id}</a>' in page
    assert "cannot_start: no disk" in page
    chosen = {"action": "retire_selected", "_selected_action": [a.row.pk]}
    client.post("/admin/fleet/remoteworker/", chosen)
    assert a.row.status == "retired"


def test_a_key_that_is_none_is_refused(fleet, account):
    for key in ("hello", "ed25519:AAAA", "sr25519:5F3s"):
        with pytest.raises(ValidationError, match="no public key"):
            create_owner(account, [key])
    assert not Owner.objects.exists()


def test_audits_are_never_given_to_the_fleet(fleet, site):
    own = create_environment(site.engine, "own", cpu=1, ram_mib=64, disk_mib=64, free={})
    policy = {"audit_environment": fleet.environment, "most": {"cpu": 1, "ram": 64, "disk": 64}, "free": {}}
    with pytest.raises(ValidationError, match="served by remote workers"):
        create_fleet_environment("second", policy={}, **policy)
    with pytest.raises(ValidationError, match="not on a fleet engine"):
        FleetPolicy(environment=own, audit_environment=site.environment).full_clean()
    with pytest.raises(ValidationError, match="cannot be null"):
        FleetPolicy().full_clean()
    assert FleetPolicy.objects.get() == fleet.policy
    assert not Environment.objects.filter(slug="second").exists()


def test_the_document_s_program_makes_an_owner_s_keys_and_binding(fleet, settings, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", program.replace('"local"', repr(settings.SITE_ID))],
        check=False, cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[2])}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("owner.key", "worker.key", "binding.json"), 0o600
    )
    create_owner(fleet.account, [done.stdout.strip()])
    told = {
        name: tmp_path / file for name, file in (("key_file", "worker.key"), ("binding_file", "binding.json"))
    }
    config = Config(site_url="http://testserver", site_id=settings.SITE_ID, state_dir=tmp_path, **told)
    client = SignedClient(config.site_url, config.site_id, config.key(), through_django)
    assert client.call("POST", "/workers/register", config.binding())["status"] == "pending"
