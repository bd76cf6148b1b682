"""Commands and the schedule: what beat and people start."""

import json
import os
import stat
from io import StringIO

from celery import current_app
from django.core.management import call_command
from knox.models import get_token_model

from compute_site.schedule import BEAT_SCHEDULE
from providers import renting
from providers.models import ProviderAccount
from tests.providers.conftest import WANTED, fresh


def passes(ahead):
    out = StringIO()
    call_command("check_pods", ahead=ahead, stdout=out)
    return out.getvalue()


def test_a_clock_ahead_ends_pods_earlier_and_never_later(at_lium, lium):
    pod = renting.ask(at_lium, WANTED)[0]
    renting.rent(pod.pk)
    assert f"lium: {pod.name} running" in [passes(0), passes(0)][1]
    assert "running" in passes(7000)
    assert "terminating deadline" in passes(7200)
    assert not lium.pods
    passes(-7200)
    assert passes(-7200) == ""
    assert fresh(pod).status == "terminated"


def test_the_passes_of_the_schedule_are_tasks():
    current_app.loader.import_default_modules()
    wanted = {
        name for entry in BEAT_SCHEDULE.values() if (name := str(entry["task"])).startswith("providers.")
    }
    assert len(wanted) == 4
    assert wanted | {"providers.rent_pod"} <= set(current_app.tasks)


def test_the_demos_accounts_are_prepared_again_and_again(lium, targon, db, monkeypatch, tmp_path):
    monkeypatch.setenv("LIUM_KEY", lium.key)
    monkeypatch.setenv("TARGON_KEY", targon.key)
    file = tmp_path / "prepared.json"
    for _ in range(2):
        call_command("prepare_pods_demo", lium=lium.url, targon=targon.url, output=file)
    assert [account.open_key() for account in ProviderAccount.objects.all()] == [lium.key, targon.key]
    assert get_token_model().objects.get().scopes == ["admin"]
    assert json.loads(file.read_text())["token"].startswith("cs_")
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
