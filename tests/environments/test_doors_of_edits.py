"""The doors again, for engines, for what running jobs hold, and for what only some doors can meet."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.messages import get_messages
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from compute_site.core.admin import STALE
from compute_site.core.db import constraint_name
from compute_site.core.models import save_clean
from environments import editing
from environments.importing import Choice, export_engine, import_configuration
from environments.models import Engine, Environment, Resource, ResourceDevice
from environments.rules import warnings
from tests.environments import doors
from tests.environments.conftest import make_engine, place_cores, take
from tests.environments.doors_files import IMPORT, as_text
from tests.environments.importing.conftest import everything, nested, offer
from tests.environments.test_admin import errors, fields_of, page, row
from tests.environments.test_doors import FILES, every_door, other  # noqa: F401
from tests.factories import client_of, make_user

pytestmark = pytest.mark.usefixtures("unrendered")
ENGINE = {"kind": "docker", "endpoint": "unix:///run/docker.sock"}
UPKEEP: dict[str, Any] = {
    "image_retention_days": 7,
    "image_cleanup_interval": 86_400,
    "payment_claim_interval": 3_600,
}
UPKEEP["scan_policy"] = "off"
IN_FILE = {
    "tls_ca": "caPath",
    "tls_certificate": "certPath",
    "tls_key": "keyPath",
    "image_retention_days": "imageRetentionDays",
    "image_cleanup_interval": "imageCleanupInterval",
    "payment_claim_interval": "paymentClaimInterval",
    "endpoint": "socketPath",
    "scan_policy": "scanPolicy",
}
NO_SCANNER = "Found “{}”, and there is no scanner; set IMAGE_SCAN_COMMAND, or leave it off."
INCOMPLETE = "TLS needs all three files: CA, certificate and key; enter this one or leave all empty."
TCP = {"endpoint": "tcp://10.0.0.1:2376"}


def refused(action: Any) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as error:
        action()
    return error.value.message_dict


def by_file(engine: dict[str, Any], host: str) -> dict[str, list[str]]:
    """An import that makes the engine; paths in our words."""
    ours = {f"[0].{theirs}": name for name, theirs in IN_FILE.items()}
    text = {IN_FILE[name]: value for name, value in engine.items() if name not in ("kind", "endpoint")}
    endpoint = engine["endpoint"]
    if endpoint.startswith("tcp://"):
        address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        text |= {"host": address, "port": int(port)}
    else:
        text["socketPath"] = endpoint.removeprefix("unix://")
    body = as_text([{**text, "environments": [offer()]}]).encode()
    found = refused(lambda: import_configuration(body, Choice(engine="new", host=host)))
    return {ours.get(path, path): texts for path, texts in found.items()}


@pytest.mark.parametrize(
    ("wrong", "at", "says", "constraint"),
    [
        ({"endpoint": ""}, "endpoint", "Found “”; write unix:///path/to/docker.sock or tcp://host:port.", ""),
        (TCP | {"tls_ca": "/ca.pem"}, "tls_key", INCOMPLETE, ""),
        (TCP | {"tls_ca": "/ca.pem", "tls_key": "/key.pem"}, "tls_certificate", INCOMPLETE, ""),
        ({"tls_ca": "/ca.pem"}, "tls_ca", "A socket needs no TLS; leave it empty.", ""),
        ({"image_retention_days": 0}, "image_retention_days", "Found 0; enter at least 1.",
         "engine_image_retention_at_least_one_day"),
        ({"image_cleanup_interval": 3599}, "image_cleanup_interval", "Found 3599; enter at least 3600.",
         "engine_image_cleanup_at_least_hourly"),
        ({"payment_claim_interval": -1}, "payment_claim_interval", "Found -1; enter a whole number, 0 or more.",
         "engine_claim_at_least_a_minute"),
        ({"scan_policy": "refuse"}, "scan_policy", NO_SCANNER.format("refuse"), ""),
        ({"scan_policy": "report"}, "scan_policy", NO_SCANNER.format("report"), ""),
    ],
)  # fmt: skip
def test_an_engine_that_may_not_be(browser, engine, host, settings, wrong, at, says, constraint):
    settings.IMAGE_SCAN_COMMAND = []
    before = everything()
    values = ENGINE | wrong
    answer = browser.post(
        "/admin/environments/engine/add/", {"name": "new", "host": host.pk, **UPKEEP, **values}
    )
    said = {
        "admin": errors(answer)[at],
        "code": refused(lambda: save_clean(Engine(name="new", host=host, **values)))[at],
        "file": by_file(values, host.name)[at],
    }
    assert said == {door: [says] for door in said}
    if constraint:
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            Engine.objects.filter(pk=engine.pk).update(**wrong)
        assert constraint_name(error.value) == constraint
    assert everything() == before


def test_a_scan_policy_without_a_scanner_by_every_file_door(engine, settings, tmp_path):
    """By REST, by command, by setting; and an edit of an engine that has one from before."""
    settings.IMAGE_SCAN_COMMAND = []
    file = nested(offer(), scanPolicy="report")
    (tmp_path / "a.json").write_text(as_text(file))
    settings.DOCKER_COMPUTE_ENVIRONMENTS = as_text(file)
    before = everything()
    for arguments in ([str(tmp_path / "a.json")], ["--from-settings"]):
        with pytest.raises(CommandError) as error:
            call_command("import_environments", *arguments, stdout=StringIO())
        assert f"[0].scanPolicy: {NO_SCANNER.format('report')}" in str(error.value)
    staff = make_user("staff")
    staff.is_staff = staff.is_superuser = True
    staff.save()
    answer = client_of(staff).post(IMPORT, {"configuration": file}, format="json")
    assert answer.status_code == 400
    (said,) = [one for one in answer.json()["errors"] if one["pointer"].endswith("/scanPolicy")]
    assert said["detail"] == NO_SCANNER.format("report")
    assert everything() == before
    Engine.objects.update(scan_policy="refuse")
    assert refused(Engine.objects.get().full_clean) == {"scan_policy": [NO_SCANNER.format("refuse")]}


def test_a_scan_policy_that_there_is_not(engine, settings):
    settings.IMAGE_SCAN_COMMAND = ["true", "{image}"]
    before = everything()
    engine.scan_policy = "often"
    words = "Found “often”; write off, report or refuse."
    assert refused(engine.full_clean) == {"scan_policy": [words]}
    found = refused(lambda: import_configuration(nested(offer(), scanPolicy="often"), Choice()))
    assert found == {"[0].scanPolicy": [words]}
    with pytest.raises(IntegrityError) as error, transaction.atomic():
        Engine.objects.update(scan_policy="often")
    assert constraint_name(error.value) == "engine_scan_policy_known"
    fleet = Engine(name="fleet", kind="fleet", scan_policy="refuse")
    assert refused(fleet.full_clean)["scan_policy"] == ["A fleet engine has no images to scan; leave it off."]
    assert everything() == before


def told(browser: Any, path: str) -> list[str]:
    """What the page says after its button was confirmed."""
    response = browser.post(path, {"_form_submitted": "on"})
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_an_engine_without_environments_is_not_activated(browser, engine):
    before = everything()
    engine.state = "active"
    none = [{"socketPath": "/var/run/docker.sock", "environments": []}]
    (code,) = refused(engine.full_clean)["state"]
    assert code == "The engine has no environment; add one, then activate the engine."
    engine.refresh_from_db()
    assert refused(lambda: editing.activate_engine(engine)) == {"state": [code]}
    assert told(browser, f"/admin/environments/engine/{engine.pk}/activate/") == [code]
    assert refused(lambda: import_configuration(none, Choice(activate=True))) == {"[0].environments": [code]}
    assert everything() == before


def test_a_slug_that_is_there(browser, environment, engine, every_door):  # noqa: F811
    before = everything()
    again = doors.plain_offer() | {"slug": "main"}
    said = {name: every_door[name](engine, again) for name in ("code", "admin")}
    twin = Environment(engine=engine, slug="main")
    said["row"] = refused(twin.full_clean)
    words = "This engine already has an environment with this slug."
    assert said == {door: {"__all__": [words]} for door in said}
    assert everything() == before
    # A file means the one that is there; only twice in one file is it wrong.
    found = refused(lambda: import_configuration(nested(offer("a"), offer("a")), Choice()))
    assert found == {"[0].environments[1].id": ["a is the id of two environments; change one."]}
    assert everything() == before


def test_no_core_is_left(other, every_door):  # noqa: F811
    assert doors.by_code(other, doors.plain_offer() | {"slug": "rest", "cores": "4-7"}) == {}
    before = everything()
    all_left = doors.plain_offer() | {"cores": ""}
    said = {name: door(other, all_left).get("cores") for name, door in every_door.items()}
    words = "No core of rack-a is left; take some from another environment."
    assert said == {door: [words] for door in said}
    assert everything() == before


@pytest.mark.parametrize("name", FILES)
def test_an_import_keeps_a_total_above_the_host(name, other, every_door):  # noqa: F811
    large = doors.plain_offer()
    doors.changed(large, "resources.ram.total", 16_385)
    assert every_door[name](other, large) == {}
    assert Resource.objects.get(environment__slug="web", slug="ram").total == 16_385


def test_unknown_keys_and_overcommitment_are_told_alike(browser, environment, host, settings, tmp_path):
    """Only files have keys that nobody knows; what all environments offer together is told by every door."""
    make_engine(host, "other")
    one = offer("web", storageExpirySecs=1)
    one["resources"][1]["total"] = 16
    (tmp_path / "a.json").write_text(as_text(nested(one, extra=2)))
    settings.DOCKER_COMPUTE_ENVIRONMENTS = as_text(nested(one, extra=2))
    notes = []
    for arguments in ([str(tmp_path / "a.json")], ["--from-settings"]):
        out = StringIO()
        call_command("import_environments", *arguments, "--dry-run", engine="other", stdout=out)
        lines = out.getvalue().splitlines()
        notes.append([line.removeprefix("note       ") for line in lines if line.startswith("note")])
    body = {"configuration": nested(one, extra=2), "engine": "other"}
    client = client_of(get_user_model().objects.get())
    answer = client.post(IMPORT, body, format="json").json()
    prefix = "/configuration/"
    found = {note["pointer"].removeprefix(prefix): note["message"] for note in answer["notes"]}
    assert notes[0] == notes[1]
    assert found["0/extra"] == "unknown key, ignored."
    assert found["0/environments/0/storageExpirySecs"] == "unknown key, ignored (is storageExpiry meant?)."
    assert [line.partition(": ")[2] for line in notes[0]] == [note["message"] for note in answer["notes"]]
    both = "ram: all environments on rack-a together offer 24576 MiB, the host has 16384 MiB"
    assert both in warnings(environment)[0]
    assert any(both in note["message"] for note in answer["notes"])
    saved = browser.post(page(environment), fields_of(browser.get(page(environment))))
    assert warnings(environment) == [str(message) for message in get_messages(saved.wsgi_request)][:1]


class TestWhileJobsRun:
    """A job holds cores 0-2, half of the memory and a device."""

    @pytest.fixture
    def device(self, environment) -> str:
        _, claim = take(environment, cpu=3, ram=4096, gpu=1)
        assert claim.cores == (0, 1, 2)
        return claim.devices[0]

    def by_admin(self, browser, environment, **changes: Any) -> dict[str, list[str]]:
        data = fields_of(browser.get(page(environment)))
        for name, value in changes.items():
            slug, _, rest = name.partition("__")
            data[row(data, slug) + rest if rest else name] = value
        return errors(browser.post(page(environment), data))

    def by_file(self, environment, at: str, change: Any) -> list[str]:
        file = export_engine(environment.engine)
        change(file["environments"][0])
        found = refused(lambda: import_configuration(as_text([file]).encode(), Choice(engine="local")))
        return found[f"[0].environments[0].{at}"]

    def test_a_total_below_what_is_in_use(self, browser, environment, device):
        before = everything()

        def lower() -> None:
            with editing.edited(environment):
                ram = environment.resources.get(slug="ram")
                ram.total = ram.max = 2048
                save_clean(ram)

        said = [
            self.by_admin(browser, environment, ram__total=2048, ram__max=2048)["ram.total"],
            refused(lower)["resources.ram.total"],
            self.by_file(
                environment, "resources[1].total", lambda one: one["resources"][1].update(total=2, max=2)
            ),
        ]
        way_out = "drain the environment and wait for its jobs, then try again."
        assert said == [[f"4096 are in use, 2048 would be left; {way_out}"]] * 3
        assert everything() == before

    def test_a_core_that_a_job_holds(self, browser, environment, device):
        before = everything()
        said = [
            self.by_admin(browser, environment, cores="1-3")["cores"],
            refused(lambda: place_cores(environment, "1-3"))["cores"],
            self.by_file(environment, "cpuCores", lambda one: one.update(cpuCores="1-3")),
        ]
        assert said[0][0].startswith("Cores 0 are held by running jobs and cannot be taken away; drain")
        assert said == [said[0]] * 3
        assert everything() == before

    def test_a_device_that_a_job_holds(self, browser, environment, device):
        before = everything()
        gpu = environment.resources.get(slug="gpu")
        left = gpu.devices.exclude(uuid=device).get()

        def take_out() -> None:
            with editing.edited(environment):
                ResourceDevice.objects.filter(resource=gpu).exclude(device=left).delete()
                Resource.objects.filter(pk=gpu.pk).update(total=1, max=1)

        def one_left(file: dict[str, Any]) -> None:
            (entry,) = [each for each in file["resources"] if each["id"] == "gpu"]
            entry |= {"total": 1, "max": 1}
            entry["init"]["deviceRequests"]["DeviceIDs"] = [left.uuid]

        at = [one.slug for one in environment.resources.order_by("pk")].index("gpu")
        said = [
            self.by_admin(browser, environment, gpu__total=1, gpu__max=1, gpu__chosen_devices=[left.pk])[
                "gpu.chosen_devices"
            ],
            refused(take_out)["resources.gpu.devices"],
            self.by_file(environment, f"resources[{at}].init.deviceRequests.DeviceIDs", one_left),
        ]
        assert "is held by a running job and cannot be taken away; drain" in said[0][0]
        assert said == [said[0]] * 3
        assert everything() == before

    def test_an_environment_with_jobs_is_not_retired(self, browser, environment, device):
        before = everything()
        replacing = Choice(engine="local", replace=True)
        said = [
            browser.post(f"/admin/fleet/fleetpolicy/retire/{environment.pk}/").context_data["refused"],
            refused(lambda: editing.retire(environment))["state"],
            refused(lambda: import_configuration(nested(offer("web")), replacing))["[0]"],
        ]
        assert said[0][0].startswith("1 jobs still hold resources of local/main; drain the environment")
        assert said == [said[0]] * 3
        assert everything() == before


def test_a_form_that_somebody_else_was_faster_than(browser, environment):
    """Only a page is opened before it is saved: whoever saves meanwhile, by any door, makes it stale."""
    opened = fields_of(browser.get(page(environment)))
    place_cores(environment, "0-3")
    before = everything()
    assert errors(browser.post(page(environment), opened | {"description": "x"}))["__all__"] == [STALE]
    assert everything() == before
    opened = fields_of(browser.get(page(environment)))
    file = export_engine(environment.engine)
    file["environments"][0]["description"] = "by file"
    assert import_configuration(as_text([file]).encode(), Choice(engine="local")).changes_anything
    before = everything()
    assert errors(browser.post(page(environment), opened | {"description": "x"}))["__all__"] == [STALE]
    assert everything() == before
