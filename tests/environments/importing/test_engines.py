"""Which engine an entry of a file is about."""

import pytest

from environments.importing import as_json, export_engine
from environments.models import Core, Engine, Host
from environments.reservations import lock_host
from tests.environments.conftest import make_engine
from tests.environments.importing.conftest import everything, nested, offer, refused, run, told, whats


class TestEngines:
    def test_by_endpoint_by_name_or_the_only_one(self, engine, host):
        elsewhere = [{**nested(offer())[0], "socketPath": "/run/other.sock"}]
        plan = run(elsewhere)
        assert any("keeps its endpoint unix:///var/run/docker.sock" in note for note in told(plan))
        second = make_engine(host, "second")
        assert run(nested(offer("b")), engine="second").changes_anything
        refused(nested(offer("c")), "[0]", "any of the engines local, second; say which engine it is for")
        refused(elsewhere, "[0]", "any of the engines local, second")
        twice = [elsewhere[0], nested(offer())[0]]
        refused(twice, "[0]", "No engine has the endpoint unix:///run/other.sock; there are: local, second")
        refused(nested(offer()), "[0]", "There is no engine third", engine="third")
        assert [row.slug for row in second.environments.all()] == ["b"]

    def test_a_missing_one_is_made_on_a_host_that_is_known(self, host):
        remote = [{"host": "h", "port": 2376, "environments": [offer()], "imageRetentionDays": 3}]
        refused(remote, "[0]", "There is no host nowhere", host="nowhere")
        assert whats(run(remote, host="rack-a")) == {"rack-a": "created", "rack-a/a": "created"}
        made = Engine.objects.get()
        assert (made.endpoint, made.state, made.image_retention_days) == ("tcp://h:2376", "disabled", 3)
        assert not run(remote, host="rack-a").changes_anything
        run(remote, activate=True)
        made.refresh_from_db()
        assert made.state == "active"
        tls = [{**remote[0], "host": "i", "caPath": "/ca"}, remote[0]]
        refused(tls, "[0].certPath", "TLS needs all three files", host="rack-a")

    def test_two_engines_of_one_host_share_its_cores(self, host):
        make_engine(host, "one")
        Engine.objects.create(host=host, name="two", endpoint="unix:///run/two.sock")
        first, second = nested(offer())[0], {**nested(offer())[0], "socketPath": "/run/two.sock"}
        run([first, second])
        assert [cores_of(name) for name in ("one", "two")] == [[0, 1], [2, 3]]
        refused([first, first], "[1]", "one stands there twice")
        refused([first, second], "file", "it is to be for one (one)", engine="one")

    def test_what_another_has_written_while_it_waited_for_the_host(self, engine, monkeypatch):
        """The last import decides, also where it asks for what was there before the other one."""
        run(nested(offer(), imageRetentionDays=3, enableBenchmark=False))

        def waited(key: int) -> Host:
            Engine.objects.update(image_retention_days=5, state="active", version=9)
            return lock_host(key)

        monkeypatch.setattr("environments.importing.applying.lock_host", waited)
        plan = run(nested(offer(), imageRetentionDays=3), activate=True)
        assert whats(plan) == {"local": "changed", "local/a": "kept"}
        engine.refresh_from_db()
        assert (engine.image_retention_days, engine.version) == (3, 10)


class TestScanPolicy:
    """`scanImages` is Ocean Node's, and refuses; `scanPolicy` is ours, for what it has no word for."""

    @pytest.fixture(autouse=True)
    def scanner(self, settings):
        settings.IMAGE_SCAN_COMMAND = ["scan", "{image}"]

    @pytest.mark.parametrize(
        ("keys", "policy"),
        [
            ({}, "off"),
            ({"scanImages": True}, "refuse"),
            ({"scanImages": False}, "off"),
            ({"scanImages": None}, "off"),
            ({"scanPolicy": "report"}, "report"),
            ({"scanPolicy": "refuse"}, "refuse"),
            ({"scanImages": True, "scanPolicy": "report"}, "report"),
        ],
    )
    def test_what_a_file_says_and_an_export_says_again(self, engine, keys, policy):
        run(nested(offer(), **keys))
        engine.refresh_from_db()
        assert engine.scan_policy == policy
        rows = everything()
        exported = as_json([export_engine(engine)])
        assert not run(exported).changes_anything
        assert everything() == rows
        run(nested(offer(), scanImages=policy == "off"))
        plan = run(exported)
        assert whats(plan) == {"local": "changed", "local/a": "kept"}
        engine.refresh_from_db()
        assert engine.scan_policy == policy

    def test_a_file_that_says_nothing_leaves_it(self, engine):
        run(nested(offer(), scanPolicy="report"))
        assert not run(nested(offer())).changes_anything

    def test_without_a_scanner_an_ocean_file_is_imported_with_a_note(self, engine, settings):
        settings.IMAGE_SCAN_COMMAND = []
        note = (
            "[0].scanImages: there is no scanner, so the scan policy stays as it is; set IMAGE_SCAN_COMMAND"
        )
        assert any(line.startswith(note) for line in told(run(nested(offer(), scanImages=True))))
        engine.refresh_from_db()
        assert engine.scan_policy == "off"
        Engine.objects.update(scan_policy="refuse")
        assert not run(as_json([export_engine(Engine.objects.get())])).changes_anything
        run(nested(offer(), scanImages=False))
        assert Engine.objects.get().scan_policy == "off"

    def test_wrong_values(self, engine):
        refused(
            nested(offer(), scanImages="yes"), "[0].scanImages", "Found “yes”; true or false belongs here."
        )
        refused(nested(offer(), scanPolicy=1), "[0].scanPolicy", "Found 1; text belongs here.")
        for keys in (
            {"scanImages": False, "scanPolicy": "refuse"},
            {"scanImages": True, "scanPolicy": "off"},
        ):
            refused(nested(offer(), **keys), "[0].scanPolicy", "keep one.")


def cores_of(engine: str) -> list[int]:
    rows = Core.objects.filter(environment__engine__name=engine).order_by("index")
    return list(rows.values_list("index", flat=True))
