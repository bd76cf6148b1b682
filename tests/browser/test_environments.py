"""An operator's day with environments, in a real browser: made, refused, drained, imported, asked, reverted."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from playwright.sync_api import Locator, Page, expect

from environments.exporting import export_engine
from environments.models import Core, Environment, Resource
from tests.environments.conftest import place_cores
from tests.factories import Site, make_account, make_site, make_user, submit, take

LIST = "/admin/environments/environment/"


def one(environment: Environment, tab: str = "") -> str:
    return f"{LIST}{environment.pk}/change/#{tab}"


def open_tab(page: Page, name: str) -> Locator:
    found = page.locator("#tabs-items a", has_text=name)
    found.click()
    return found


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()


def message(page: Page, text: str) -> None:
    expect(page.get_by_text(text).first).to_be_visible()


@pytest.fixture
def site(transactional_db: None) -> Site:
    return make_site()


def test_an_environment_from_nothing(page: Page, site: Site):
    page.goto(f"{LIST}add/")
    page.locator("#id_slug").fill("web")
    page.locator("#id_engine").select_option(label="local")
    open_tab(page, "Resources")
    for number, total in enumerate(("", "2048", "4000")):
        page.locator(f"#id_resources-{number}-total").fill(total)
    open_tab(page, "Cores")
    page.locator("#id_cores").fill("4-5")
    open_tab(page, "Prices")
    page.get_by_role("link", name="Add another Price list").click()
    page.locator("#id_price_lists-0-prices").fill("cpu 0.02")
    page.locator("#id_comment").fill("for the web team")
    save(page)
    message(page, "was added successfully")
    made = Environment.objects.get(slug="web")
    assert dict(made.resources.values_list("slug", "total")) == {"cpu": 2, "ram": 2048, "disk": 4000}
    edit = made.edits.get()
    assert (edit.by, edit.door, edit.comment) == ("olga", "page", "for the web team")


def test_a_core_that_another_has_is_refused_beside_the_field(page: Page, site: Site):
    other = Environment.objects.get(pk=site.environment.pk)
    page.goto(f"{LIST}add/")
    page.locator("#id_slug").fill("web")
    page.locator("#id_engine").select_option(label="local")
    open_tab(page, "Resources")
    page.locator("#id_resources-2-total").fill("4000")
    open_tab(page, "Cores")
    page.locator("#id_cores").fill("3-5")
    open_tab(page, "Prices")
    page.get_by_role("link", name="Add another Price list").click()
    page.locator("#id_price_lists-0-prices").fill("cpu 0.02")
    save(page)
    field = page.locator(".field-line", has=page.locator("#id_cores"))
    expect(field).to_be_visible()  # its tab was opened
    expect(field).to_contain_text("Core 3 belongs to local/main; take it out there first.")
    expect(page.locator("#tabs-items a", has_text="Cores").locator(".cs-count")).to_have_text("1")
    assert not Environment.objects.exclude(pk=other.pk).exists()
    page.locator("#id_cores").fill("4-5")
    save(page)
    message(page, "was added successfully")


def test_what_a_job_holds_is_refused_with_the_way_out(page: Page, site: Site):
    run_job()
    page.goto(one(site.environment, "cores"))
    held = page.locator(".cs-part a.cs-held:visible")
    expect(held).to_have_text("0")
    page.locator("#id_cores").fill("1-3")
    save(page)
    field = page.locator(".field-line", has=page.locator("#id_cores"))
    expect(field).to_contain_text("drain the environment and wait for its jobs")
    open_tab(page, "Jobs now")
    page.locator(".cs-part a.cs-link:visible").click()
    expect(page).to_have_url(re.compile("/admin/jobs/job/"))


def test_every_tab_is_in_sight_in_a_narrow_window(page: Page, site: Site):
    page.set_viewport_size({"width": 420, "height": 800})
    page.goto(one(site.environment))
    for tab in page.locator("#tabs-items a").all():
        tab.click()
        expect(tab).to_have_class(re.compile("active"))
    assert page.locator("#tabs-items a").count() == 10
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def run_job() -> Any:
    user = make_user("ada")
    make_account("ada's", user)
    return take(submit(user), "created", "starting", "running")


def test_drain(page: Page, site: Site):
    page.goto(one(site.environment))
    page.get_by_role("link", name="Drain").press("Enter")
    message(page, "It takes no new jobs.")
    page.locator("#id_comment").fill("disks are changed")
    page.locator("#id_comment").press("Enter")  # by keyboard alone
    message(page, "local/main: draining")
    open_tab(page, "History")
    message(page, "by a button")
    message(page, "“disks are changed”")
    assert Environment.objects.get(pk=site.environment.pk).state == "draining"


def test_retire(page: Page, site: Site):
    run_job()
    submit(get_user_model().objects.get(username="ada"))
    page.goto(one(site.environment))
    page.get_by_role("link", name="Retire").click()
    message(page, "Jobs that wait in its queue: 1. They end as expired, and cost nothing.")
    message(page, "1 jobs still hold resources of local/main")
    expect(page.get_by_role("button", name="Retire")).to_have_count(0)
    page.get_by_role("link", name="Back").click()
    expect(page).to_have_url(re.compile(f"/environment/{site.environment.pk}/change/"))


def test_import(page: Page, site: Site):
    (configuration,) = [export_engine(site.engine)]
    configuration["environments"][0]["description"] = "from a file"
    text = json.dumps([configuration], default=float).encode()
    page.goto(f"{LIST}import/")
    page.locator("#id_file").set_input_files(
        {"name": "site.json", "mimeType": "application/json", "buffer": text}
    )
    page.get_by_role("button", name="Show the plan").click()
    message(page, "Nothing is written yet")
    expect(page.locator("td", has_text="from a file")).to_be_visible()
    assert Environment.objects.get().description == ""
    page.get_by_role("button", name="Apply").click()
    message(page, "Imported: changed local/main.")
    assert Environment.objects.get().description == "from a file"
    edit = site.environment.edits.first()
    assert edit is not None
    assert (edit.by, edit.door) == ("olga", "import")


def test_what_would_fit(page: Page, site: Site):
    run_job()
    page.goto(one(site.environment))
    page.get_by_role("link", name="What would fit now").click()
    answer = page.locator("#answer")
    for cores, words in (("3", "starts"), ("4", "needs 4 cpu, 3 free"), ("5", "cpu: asked 5, at most 4")):
        page.locator("#id_resource-cpu").fill(cores)
        page.get_by_role("button", name="Ask").click()
        expect(answer).to_contain_text(words)
    page.locator("#id_resource-cpu").fill("2")
    page.get_by_role("button", name="Ask").click()
    expect(answer).to_contain_text("2 credit per minute")


def test_revert(page: Page, site: Site):
    place_cores(site.environment, "0-3,6")
    Resource.objects.filter(slug="ram").update(total=5000, max=5000)  # past the history
    page.goto(one(site.environment))
    open_tab(page, "General")
    page.locator("#id_description").fill("later")
    save(page)
    message(page, "was changed successfully")
    page.goto(one(site.environment, "history"))
    expect(page.locator(".cs-part:visible tr")).to_have_count(5)
    page.get_by_role("link", name="revert to this").last.click()
    expect(page.locator(".cs-changes")).to_contain_text("cpuCores 0, 1, 2, 3, 6 → 0, 1, 2, 3")
    assert set(cores(site.environment)) == {0, 1, 2, 3, 6}
    page.get_by_role("button", name="Revert to this").click()
    message(page, "local/main: reverted.")
    assert cores(site.environment) == [0, 1, 2, 3]
    fresh = Environment.objects.get(pk=site.environment.pk)
    assert fresh.description == ""
    assert fresh.resources.get(slug="ram").total == 8192


def cores(environment: Environment) -> list[int]:
    return list(
        Core.objects.filter(environment=environment).order_by("index").values_list("index", flat=True)
    )
