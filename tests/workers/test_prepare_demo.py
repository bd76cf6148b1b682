"""The example site: complete, repeatable, and nothing of an operator's is overwritten."""

import json
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.test import APIClient

from environments.editing import drain_engine
from environments.models import Core, Engine, EngineState, Environment, Host
from jobs.billing.models import Account, Membership
from jobs.models import Token
from workers.management.commands.prepare_demo import provide_admin, provide_environments, provide_token

pytestmark = pytest.mark.django_db


def engine_on(cores: int) -> Engine:
    host = Host.objects.create(name="h", cpu_count=cores, memory_mib=16_384, disk_mib=100_000)
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(cores))
    return Engine.objects.create(host=host, name="e", endpoint="unix:///nowhere")


def amounts(environment: Environment) -> dict[str, int]:
    return dict(environment.resources.values_list("slug", "total"))


def test_two_environments_share_one_host_and_the_engine_is_active():
    engine = engine_on(5)
    large, small = provide_environments(engine)
    assert (large.slug, small.slug) == ("large", "small")
    assert amounts(small) == {"cpu": 2, "ram": 3840, "disk": 4096}
    assert amounts(large) == {"cpu": 3, "ram": 11_520, "disk": 16_384}
    assert small.free_tier.resources.count() == 3
    assert not hasattr(large, "free_tier")
    engine.refresh_from_db()
    assert engine.state == EngineState.ACTIVE
    assert engine.host is not None
    engine.host.refresh_from_db()
    assert (engine.host.reserve_memory_mib, engine.host.reserve_disk_mib) == (1024, 10_000)


def test_a_single_core_is_not_shared():
    (small,) = provide_environments(engine_on(1))
    assert small.slug == "small"
    assert amounts(small)["cpu"] == 1


def test_what_an_operator_changed_stays():
    engine = engine_on(4)
    provide_environments(engine)
    drain_engine(engine)
    Environment.objects.filter(slug="large").update(description="mine")
    assert len(provide_environments(engine)) == 2
    engine.refresh_from_db()
    assert engine.state == EngineState.DRAINING
    assert Environment.objects.get(slug="large").description == "mine"


def test_environments_of_the_settings_come_in_place_of_the_examples(settings: Any, tmp_path: Path):
    engine = engine_on(4)
    offer = {
        "id": "mine",
        "resources": [{"id": "cpu", "total": 1}, {"id": "ram", "total": 1}, {"id": "disk", "total": 1}],
        "fees": {"credit": [{"prices": [{"id": "cpu", "price": 1}]}]},
    }
    file = tmp_path / "environments.json"
    file.write_text(json.dumps([{"socketPath": "/var/run/docker.sock", "environments": [offer]}]))
    settings.DOCKER_COMPUTE_ENVIRONMENTS = f"@{file}"
    for _ in range(2):
        (made,) = provide_environments(engine)
        assert (made.slug, made.version) == ("mine", 1)
        assert amounts(made) == {"cpu": 1, "ram": 1024, "disk": 1024}
    engine.refresh_from_db()
    assert engine.state == EngineState.ACTIVE
    offer["fees"] = {}
    settings.DOCKER_COMPUTE_ENVIRONMENTS = json.dumps([{"environments": [offer]}])
    with pytest.raises(ValidationError, match="neither a price nor a free tier"):
        provide_environments(engine)


def test_the_password_is_new_until_somebody_has_logged_in():
    first, second = provide_admin(), provide_admin()
    user: Any = get_user_model().objects.get(username="admin")
    assert user.is_superuser
    assert user.is_staff
    assert first != second
    assert user.check_password(second)
    user.last_login = timezone.now()
    user.save()
    assert provide_admin() is None
    assert get_user_model().objects.get(username="admin").check_password(second or "")


def test_the_token_opens_the_api_and_voids_the_one_before():
    first, second = provide_token(), provide_token()
    client = APIClient()
    for token, status in ((first, 401), (second, 200)):
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        assert client.get("/api/v1/environments").status_code == status
    assert Token.objects.get().expiry is not None
    assert Membership.objects.get().account == Account.objects.get()
    assert not User.objects.get(username="demo").has_usable_password()


@pytest.mark.engine
def test_the_whole_command_on_a_real_engine_twice(tmp_path: Path):
    output = tmp_path / "prepared.json"
    for _ in range(2):
        told = StringIO()
        call_command("prepare_demo", output=output, stdout=told)
        prepared = json.loads(output.read_text())
        assert prepared["token"] not in told.getvalue()
        assert prepared["admin_password"] not in told.getvalue()
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert prepared["engine"] == "local"
    engine = Engine.objects.get()
    assert engine.workspace_mode
    assert engine.state == EngineState.ACTIVE
    assert Environment.objects.count() == len(prepared["environments"])


@pytest.mark.engine
def test_an_engine_that_does_not_answer_is_told_in_one_line(settings: Any, tmp_path: Path):
    settings.DOCKER_HOST = f"unix://{tmp_path}/nobody.sock"
    with pytest.raises(CommandError, match=r"nobody\.sock"):
        call_command("prepare_demo", stdout=StringIO())
    assert not Environment.objects.exists()
