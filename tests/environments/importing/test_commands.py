"""The commands, and the way back: what was exported changes nothing."""

import json

import pytest
from django.core.management import CommandError, call_command

from environments import editing
from environments.importing import export_engine
from environments.models import Device, Environment
from tests.environments.importing.conftest import TOKEN, nested, offer, prices, refused, run


def test_what_an_operator_made_is_exported_and_imported_as_it_is(environment, engine, host, tmp_path, capsys):
    """A whole environment of ours, with all that the form has words for, into a second site."""
    environment.access_rules.create(tier="free", kind="group", value="lab")
    environment.access_rules.create(tier="paid", kind="access_list", value="1:0xab")
    Environment.objects.update(max_queue_wait=100, max_jobs=4, description="all of it")
    call_command("export_environments", "--engine", "local")
    text = capsys.readouterr().out
    assert not run(text).changes_anything
    rows = [export_engine(engine)]
    editing.retire(environment)
    Environment.objects.all().delete()
    Device.objects.all().delete()
    file = tmp_path / "exported.json"
    file.write_text(text)
    call_command("import_environments", str(file))
    assert [export_engine(engine)] == rows


class TestCommand:
    def test_the_plan_comes_first(self, engine, tmp_path, capsys):
        file = tmp_path / "configuration.json"
        file.write_text(json.dumps(nested(offer(storageExpirySecs=1))))
        call_command("import_environments", str(file), "--dry-run")
        told = capsys.readouterr().out
        assert "created    environment local/a" in told
        assert "storageExpirySecs: unknown key, ignored (is storageExpiry meant?)" in told
        assert "nothing was written" in told
        assert not Environment.objects.exists()
        call_command("import_environments", str(file))
        assert capsys.readouterr().out.endswith("applied\n")
        call_command("import_environments", str(file))
        assert "nothing changes" in capsys.readouterr().out

    def test_from_settings(self, engine, settings, tmp_path):
        settings.DOCKER_COMPUTE_ENVIRONMENTS = json.dumps(nested(offer()))
        call_command("import_environments", from_settings=True)
        file = tmp_path / "configuration.json"
        file.write_text(json.dumps(nested(offer("b"))))
        settings.DOCKER_COMPUTE_ENVIRONMENTS = f"@{file}"
        call_command("import_environments", from_settings=True)
        assert set(Environment.objects.values_list("slug", flat=True)) == {"a", "b"}
        settings.DOCKER_COMPUTE_ENVIRONMENTS = json.dumps(nested())
        with pytest.raises(CommandError, match=r"\[0\]\.environments: The engine has no environment"):
            call_command("import_environments", from_settings=True)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "Name a file"),
            (["x", "--from-settings"], "one of them"),
            (["/nowhere.json"], "No such file"),
            (["--from-settings"], "is empty"),
            (["-", "--token", "x"], "no token"),
        ],
        ids=str,
    )
    def test_wrong_arguments(self, db, arguments, words):
        with pytest.raises(CommandError, match=words):
            call_command("import_environments", *arguments)

    def test_a_default_token(self, engine, tmp_path):
        bare = offer(fees={"5": [{"prices": [{"id": "cpu", "price": 1}]}]})
        refused(nested(bare), "[0].environments[0].fees", "neither a price nor a free tier")
        run(nested(bare), tokens={"5": TOKEN})
        assert list(prices(Environment.objects.get())) == [(f"5:{TOKEN}", "cpu")]
