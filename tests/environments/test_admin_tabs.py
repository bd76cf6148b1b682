"""The environment's page in tabs: where errors are marked, its history, and the page of a revert."""

import pytest
from django.contrib.auth.models import Permission

from environments.editing import drain, retire
from environments.models import Edit, Engine, Environment
from environments.setup import create_environment
from tests.environments.conftest import place_cores, take
from tests.environments.test_admin import ADD, add_rows, errors, fields_of, new, page, row
from tests.factories import make_user


def tabs(response) -> list[str]:
    (found,) = response.context_data["tab_list"]
    return [str(item["inline"]) for item in found["items"]]


def revert_page(edit: Edit) -> str:
    return f"/admin/environments/environment/{edit.environment_id}/history/{edit.pk}/"


@pytest.mark.usefixtures("unrendered")
class TestTabs:
    def test_a_new_one_has_no_jobs_and_no_history(self, browser, engine):
        there = ["general", "resources", "cores", "access_rules", "price_lists", "free_tier", "constraints"]
        assert tabs(browser.get(ADD)) == there

    @pytest.mark.parametrize(
        ("changes", "tab"),
        [
            ({"slug": "A b"}, "general"),
            ({"cores": "0-99"}, "cores"),
            ({"disk.total": 0}, "resources"),
            ({"disk.total": ""}, "resources"),
            ({"price_lists-0-prices": "tpu 1"}, "price_lists"),
            ({"price_lists-TOTAL_FORMS": 0}, "price_lists"),
        ],
        ids=str,
    )
    def test_the_first_with_an_error_is_opened(self, browser, engine, changes, tab):
        data = new(browser, engine)
        for name, value in changes.items():
            slug, _, rest = name.partition(".")
            data[row(data, slug) + rest if rest else name] = value
        response = browser.post(ADD, data)
        assert response.context_data["open_tab"] == tab
        titles = {
            item["inline"]: str(item["title"]) for item in response.context_data["tab_list"][0]["items"]
        }
        assert [name for name, title in titles.items() if "cs-count" in title] == [tab]
        assert not Environment.objects.exists()

    def test_free_parts_and_devices_in_use_stand_beside_their_fields(self, browser, environment):
        data = fields_of(browser.get(page(environment)))
        ram, gpu = row(data, "ram"), row(data, "gpu")
        response = browser.post(page(environment), data | {ram + "total": 1024, ram + "max": 1024})
        assert errors(response)["ram.free_total"] == [
            "2048 is more than the resource's total of 1024; lower it."
        ]
        take(environment, gpu=2)
        kept = data[gpu + "chosen_devices"][1:]
        fewer = {gpu + "chosen_devices": kept, gpu + "total": 1, gpu + "max": 1}
        found = errors(browser.post(page(environment), data | fewer))
        assert "is held by a running job" in found["gpu.chosen_devices"][0]

    def test_one_of_the_fleet(self, browser, db):
        engine = Engine.objects.create(name="fleet", kind="fleet")
        made = create_environment(engine, "all", cpu=4, ram_mib=1024, disk_mib=1024, prices={"cpu": 1})
        data = fields_of(browser.get(page(made)))
        assert browser.post(page(made), data | {"cores": "0"}).context_data["open_tab"] == "cores"
        response = browser.post(page(made), data | {"description": "everywhere"})
        assert response.status_code == 302, errors(response)
        assert made.edits.count() == 2
        refused = browser.get(revert_page(made.edits.all()[0])).context_data["refused"]
        assert "fleet/all is served by the fleet" in str(refused)


def test_one_of_the_fleet_says_why_there_is_no_way_back(browser, db):
    engine = Engine.objects.create(name="fleet", kind="fleet")
    made = create_environment(engine, "all", cpu=4, ram_mib=1024, disk_mib=1024, prices={"cpu": 1})
    drain(made)
    html = browser.get(page(made)).content.decode()
    assert made.edits.count() == 2
    assert "enter the earlier values on its page instead" in html
    assert "revert to this" not in html
    first = made.edits.order_by("pk")[0]
    asked = browser.post(revert_page(first), {"expected": "x"})
    assert "enter the earlier values on its page instead" in asked.content.decode()
    assert made.edits.count() == 2


class TestHistory:
    def test_a_save_with_its_comment_and_rows_is_one_entry(self, browser, environment):
        data = fields_of(browser.get(page(environment)))
        add_rows(data, "access_rules", tier="paid", kind="user", value="ada")
        data |= {"comment": "for ada", row(data, "ram") + "max": 4096}
        assert browser.post(page(environment), data).status_code == 302
        edit = environment.edits.all()[0]
        assert (edit.by, edit.door, edit.comment) == ("olga", "page", "for ada")
        assert environment.edits.count() == 2
        html = browser.get(page(environment)).content.decode()
        assert "“for ada”" in html
        assert "<code>access.users</code> <b>nothing</b> → <b>ada</b>" in html
        assert "<code>resources[ram].max</code> <b>8</b> → <b>4</b>" in html
        again = browser.get(f"/admin/environments/environment/{environment.pk}/history/")
        assert again.url == f"{page(environment)}#history"

    def test_a_stale_form_leaves_none(self, browser, environment):
        data = fields_of(browser.get(page(environment)))
        place_cores(environment, "0-4")
        assert browser.post(page(environment), data | {"description": "x"}).status_code == 200
        assert environment.edits.count() == 2

    def test_revert(self, browser, environment):
        first = environment.edits.get()
        place_cores(environment, "0-5")
        shown = browser.get(revert_page(first))
        assert "<b>0, 1, 2, 3, 4, 5</b> → <b>0, 1, 2, 3</b>" in shown.content.decode()
        expected = shown.context_data["plan"].fingerprint
        place_cores(environment, "0-6")
        stale = browser.post(revert_page(first), {"expected": expected})
        assert "It was changed since this page was opened." in stale.content.decode()
        assert environment.cores.count() == 7
        expected = stale.context_data["plan"].fingerprint
        done = browser.post(revert_page(first), {"expected": expected, "comment": "too many"})
        assert done.status_code == 302
        assert environment.cores.count() == 4
        edit = environment.edits.all()[0]
        assert (edit.by, edit.door, edit.comment) == ("olga", "revert", "too many")

    def test_no_way_back_for_what_is_retired(self, browser, environment):
        place_cores(environment, "0-1")
        first = environment.edits.order_by("pk")[0]
        assert "revert to this" in browser.get(page(environment)).content.decode()
        retire(environment)
        assert "revert to this" not in browser.get(page(environment)).content.decode()
        assert "is retired for good" in browser.get(revert_page(first)).content.decode()

    @pytest.mark.parametrize("comment", ["x" * 1001, "a\0b"])
    def test_a_comment_that_cannot_be_kept_is_asked_for_again(self, browser, environment, comment):
        first = environment.edits.get()
        place_cores(environment, "0-5")
        expected = browser.get(revert_page(first)).context_data["plan"].fingerprint
        asked = browser.post(revert_page(first), {"expected": expected, "comment": comment})
        assert asked.status_code == 200
        assert "comment" in asked.context_data["form"].errors
        assert "It was changed since" not in asked.content.decode()
        assert (environment.cores.count(), environment.edits.count()) == (6, 2)

    def test_a_refused_revert_tells_the_numbers(self, browser, environment):
        first = environment.edits.get()
        place_cores(environment, "0-5")
        take(environment, cpu=6)
        html = browser.get(revert_page(first)).content.decode()
        assert "Cores 4-5 are held by running jobs and cannot be taken away; drain the environment" in html
        assert "Revert to this" not in html
        assert environment.cores.count() == 6

    def test_only_who_may_change_it(self, client, environment):
        viewer = make_user("vera")
        viewer.is_staff = True
        viewer.save()
        viewer.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
        client.force_login(viewer)
        html = client.get(page(environment)).content.decode()
        assert "Made." in html
        assert "cpu 1" in html
        assert "revert to this" not in html
        assert client.get(revert_page(environment.edits.get())).status_code == 404
