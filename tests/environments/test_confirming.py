"""The page before a change of state: what is in the way is told first, and the comment stands in the history."""

import pytest
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError

from environments import editing
from environments.history import Author
from environments.models import Environment
from environments.reverting import revert
from tests.environments.test_benchmark import measuring, terms  # noqa: F401
from tests.factories import make_user


def at(environment: Environment, button: str) -> str:
    return f"/admin/environments/environment/{environment.pk}/{button}/"


def test_a_comment_stands_in_the_history(browser, environment):
    for button, state in (("drain", "draining"), ("resume", "active")):
        assert browser.get(at(environment, button)).context_data["refused"] == []
        assert browser.post(at(environment, button), {"comment": f"why {button}"}).status_code == 302
        edit = environment.edits.all()[0]
        assert (edit.by, edit.door, edit.comment, edit.state) == ("olga", "button", f"why {button}", state)
    html = browser.get(f"/admin/environments/environment/{environment.pk}/change/").content.decode()
    assert "“why drain”" in html


def test_looking_changes_nothing(browser, environment):
    before = Environment.objects.values().get()
    html = browser.get(at(environment, "drain")).content.decode()
    assert "It takes no new jobs." in html
    assert (Environment.objects.values().get(), environment.edits.count()) == (before, 1)


def test_what_refuses_it_is_told_before_and_again(browser, environment):
    for ask in (browser.get, browser.post):
        response = ask(at(environment, "resume"))
        assert response.context_data["refused"] == ["local/main is active; it cannot become active"]
        assert "id_comment" not in response.content.decode()
    assert environment.edits.count() == 1


@pytest.mark.parametrize("comment", ["x" * 1001, "a\0b"])
def test_a_comment_that_cannot_be_kept_is_asked_for_again(browser, environment, comment):
    asked = browser.post(at(environment, "drain"), {"comment": comment})
    assert "comment" in asked.context_data["form"].errors
    assert (Environment.objects.get().state, environment.edits.count()) == ("active", 1)


@pytest.mark.parametrize("button", ["drain", "resume", "retire"])
def test_a_benchmark_is_switched_at_its_engine(browser, engine, button):
    row = measuring(engine)
    path = f"/admin/fleet/fleetpolicy/retire/{row.pk}/" if button == "retire" else at(row, button)
    for ask in (browser.get, browser.post):
        (refused,) = ask(path).context_data["refused"]
        assert (
            refused
            == "local/benchmark measures its host: switch enable_benchmark of engine local off instead."
        )
    assert (Environment.objects.get(pk=row.pk).state, row.edits.count()) == ("active", 1)


def test_only_who_may_change_it(client, environment):
    viewer = make_user("vera")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(viewer)
    for path in (at(environment, "drain"), f"/admin/fleet/fleetpolicy/retire/{environment.pk}/"):
        assert client.get(path).status_code == 403
        assert client.post(path).status_code == 403
    assert Environment.objects.get().state == "active"


def test_there_is_nothing_to_do_with_what_is_not_there(browser, environment):
    editing.drain(environment)
    for path in (at(environment, "resume"), f"/admin/fleet/fleetpolicy/retire/{environment.pk}/"):
        assert browser.post(path.replace(str(environment.pk), "999999")).status_code == 404


def test_a_benchmark_has_no_way_back_either(browser, engine):
    row = measuring(engine)
    html = browser.get(f"/admin/environments/environment/{row.pk}/change/").content.decode()
    assert "local/benchmark follows its host and the BENCHMARK settings: change those instead." in html
    with pytest.raises(ValidationError, match="follows its host and the BENCHMARK settings"):
        revert(row.edits.get(), Author("olga"))
    assert row.edits.count() == 1
