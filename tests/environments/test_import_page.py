"""The admin's import: a form, the plan, and only that plan applied."""

import json
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.core import signing
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models import Q

from environments.admin import EnvironmentAdmin, import_page
from environments.importing import export_engine
from environments.models import Environment, Resource
from tests.environments.importing.conftest import everything, nested, offer, resource, run
from tests.environments.test_admin import errors, fields_of, page, row

PAGE = "/admin/environments/environment/import/"
LIST = "/admin/environments/environment/"


def text_of(*environments: dict[str, Any]) -> str:
    return json.dumps(nested(*environments))


def plan_of(browser, *environments: dict[str, Any], **fields: Any) -> Any:
    """The page with the plan; nothing was written."""
    before = everything()
    response = browser.post(PAGE, {"step": "plan", "text": text_of(*environments), **fields})
    assert response.status_code == 200
    assert everything() == before
    return response


def step(browser, shown_page: Any, name: str) -> Any:
    return browser.post(PAGE, {"step": name, "shown": shown_page.context_data["shown"]})


def told(response: Any) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def test_the_plan_is_shown_and_applied(browser, engine):
    assert 'enctype="multipart/form-data"' in browser.get(PAGE).content.decode()
    shown = plan_of(browser, offer(storageExpirySecs=1), activate="on")
    html = shown.content.decode()
    assert "environment local/a" in html
    assert "resources[ram].total" in html
    assert "is storageExpiry meant?" in html
    response = step(browser, shown, "apply")
    assert (response.status_code, response.url) == (302, LIST)
    assert told(response) == "Imported: created local/a, activated local."
    made = Environment.objects.get()
    engine.refresh_from_db()
    assert engine.state == "active"
    assert [entry.get_edited_object() for entry in LogEntry.objects.order_by("pk")] == [made, engine]
    again = plan_of(browser, offer())
    assert "Nothing changes" in again.content.decode()
    assert 'value="apply"' not in again.content.decode()


def test_back_changes_nothing_and_keeps_what_was_entered(browser, engine):
    shown = plan_of(browser, offer(), engine=engine.pk, replace="on", tokens="1=0x12")
    before = everything()
    form = step(browser, shown, "back").context_data["form"]
    assert form["text"].value() == text_of(offer())
    assert [form[name].value() for name in ("engine", "replace", "activate", "tokens")] == [
        *(engine.pk, True, False, "1=0x12")
    ]
    assert everything() == before


def test_a_plan_that_is_another_one_by_now_is_shown_and_not_applied(browser, engine):
    run(nested(offer()))
    shown = plan_of(browser, offer(maxJobs=5))
    Environment.objects.update(max_jobs=4)
    before = everything()
    response = step(browser, shown, "apply")
    assert import_page.STALE in response.content.decode()
    assert [str(value.before) for value in response.context_data["plan"].changes[-1].values] == ["4"]
    assert everything() == before
    assert step(browser, response, "apply").status_code == 302
    assert Environment.objects.get().max_jobs == 5


def test_only_what_was_shown_to_this_user_is_applied(browser, engine):
    shown = plan_of(browser, offer()).context_data["shown"]
    before = everything()
    for wrong in ("", shown[:-1], shown[1:], signing.dumps({"user": 1})):
        response = browser.post(PAGE, {"step": "apply", "shown": wrong})
        assert (response.status_code, response.url) == (302, PAGE)
        assert import_page.LOST in told(response)
    browser.force_login(get_user_model().objects.create_superuser("ivan", password="x"))
    assert browser.post(PAGE, {"step": "apply", "shown": shown}).url == PAGE
    assert everything() == before


def test_refusals_stand_beside_the_text_with_their_path(browser, engine):
    file = SimpleUploadedFile("a.json", text_of(offer(maxJobs=-1, cpuCores=[])).encode())
    response = browser.post(PAGE, {"step": "plan", "file": file, "engine": engine.pk, "activate": "on"})
    form = response.context_data["form"]
    assert set(form.errors) == {"text"}
    assert form.errors["text"][0].startswith("[0].environments[0].maxJobs: Found -1")
    assert form.errors["text"][1].startswith("[0].environments[0].cpuCores: Names no core")
    assert "maxJobs" in str(form["text"].value())  # the text of the file, to mend it here
    assert (str(form["engine"].value()), form["activate"].value()) == (str(engine.pk), True)
    assert not Environment.objects.exists()


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({}, "file", "Choose a file"),
        ({"text": "   "}, "file", "Choose a file"),
        ({"text": "{"}, "text", "This is no JSON"),
        ({"text": "[]", "file": b"[]"}, "text", "keep one of them"),
        ({"file": b"\xff"}, "file", "no text in UTF-8"),
        ({"file": b"x" * (1024 * 1024 + 1)}, "file", "the most that is read"),
        ({"text": "[]", "tokens": "x"}, "tokens", "is no token of a chain"),
        ({"text": "[]", "engine": "77"}, "engine", "Select a valid choice"),
        ({"text": "a\0b"}, "text", "Null characters"),
    ],
)
def test_wrong_forms(browser, engine, fields, field, words):
    data = {
        name: SimpleUploadedFile("a.json", value) if isinstance(value, bytes) else value
        for name, value in fields.items()
    }
    response = browser.post(PAGE, {"step": "plan", **data})
    assert words in " ".join(response.context_data["form"].errors[field])
    assert not Environment.objects.exists()


def test_only_staff_with_the_permissions(client, engine):
    user = get_user_model().objects.create_user("ivan", password="x", is_staff=True)
    may = Q(content_type__app_label="environments", codename__startswith="view_")
    names = ["add_engine", "add_environment", "change_engine"]
    user.user_permissions.set(Permission.objects.filter(may | Q(codename__in=names)))
    client.force_login(user)
    for response in (client.get(PAGE), client.post(PAGE, {"step": "plan", "text": text_of(offer())})):
        assert response.status_code == 403
    assert PAGE not in client.get(LIST).content.decode()
    assert client.get(f"{LIST}export/").status_code == 200
    user.user_permissions.add(Permission.objects.get(codename="change_environment"))
    assert client.get(PAGE).status_code == 200
    assert PAGE in client.get(LIST).content.decode()
    user.user_permissions.remove(Permission.objects.get(codename="view_accessrule"))
    assert client.get(f"{LIST}export/").status_code == 403
    user.is_staff = False
    user.save()
    assert client.get(PAGE).status_code == 302


def test_buttons_of_an_engine(browser, engine):
    run(nested(offer()))
    assert browser.get("/admin/environments/engine/import/").url == PAGE
    here = browser.get(f"/admin/environments/engine/{engine.pk}/import/")
    assert here.url == f"{PAGE}?engine={engine.pk}"
    assert browser.get(here.url).context_data["form"]["engine"].value() == str(engine.pk)
    file = browser.get(f"/admin/environments/engine/{engine.pk}/export/")
    assert file["Content-Disposition"] == 'attachment; filename="local.json"'
    assert not run(file.content.decode()).changes_anything
    assert browser.get("/admin/environments/engine/77/export/").status_code == 404
    assert json.loads(browser.get(f"{LIST}export/").content)[0]["environments"] == json.loads(
        json.dumps(export_engine(engine)["environments"], default=float)
    )


@pytest.mark.usefixtures("unrendered")
class TestTotalAboveTheHost:
    @pytest.fixture
    def environment(self, engine):
        large = offer()
        large["resources"][1] = resource("ram", 500)
        run(nested(large))
        return Environment.objects.get()

    def test_other_things_can_be_edited(self, browser, environment):
        data = fields_of(browser.get(page(environment))) | {"description": "new"}
        response = browser.post(page(environment), data)
        assert response.status_code == 302, errors(response)
        environment.refresh_from_db()
        assert environment.description == "new"
        assert Resource.objects.get(slug="ram").total == 512_000
        assert "the total of 512000 MiB of ram is more than the host has" in told(response)
        (shown,) = browser.get(LIST).context_data["cl"].result_list
        assert "of 16 GiB" in EnvironmentAdmin(Environment, site).use(shown)

    def test_another_number_must_fit(self, browser, environment):
        data = fields_of(browser.get(page(environment)))
        ram = row(data, "ram")
        response = browser.post(page(environment), data | {ram + "total": 20_000, ram + "max": 20_000})
        assert "20000 MiB is more than the host's 16384 MiB" in errors(response)["ram.total"][0]
        assert Resource.objects.get(slug="ram").total == 512_000
        response = browser.post(page(environment), data | {ram + "total": 16_384, ram + "max": 16_384})
        assert response.status_code == 302, errors(response)

    def test_its_host_can_be_edited(self, browser, environment, host):
        path = f"/admin/environments/host/{host.pk}/change/"
        data = fields_of(browser.get(path))
        assert browser.post(path, data | {"architecture": "arm64"}).status_code == 302
        host.refresh_from_db()
        assert host.architecture == "arm64"
        response = browser.post(path, fields_of(browser.get(path)) | {"disk_mib": 5000})
        assert "4096 MiB of disk, 3000 would be left" in errors(response)["disk_mib"][0]
