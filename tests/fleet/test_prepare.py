"""`manage.py prepare_fleet`, and the fleet in the admin."""

import stat

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from tests.fleet.remote import through_django
from workers.fleet.agent.config import read_config
from workers.fleet.client import SignedClient
from workers.fleet.models import Audit, FleetPolicy, Owner, RemoteWorker, Unit
from workers.fleet.passes import run_pass

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
    a, b = fleet.worker(), fleet.worker()
    fleet.job()
    run_pass()
    a.fail(a.pull()[0])
    run_pass()
    a.report(a.pull()[0], text=b"1")
    b.report(b.pull()[0], text=b"2")
    client.force_login(get_user_model().objects.create_superuser("root"))
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
