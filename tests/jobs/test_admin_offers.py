"""The page of an environment with jobs: what would leave them waiting for ever is refused beside its field."""

import pytest

from environments.models import Environment
from jobs.cancellation import cancel
from tests.environments.test_admin import errors, fields_of, page, row
from tests.factories import submit, take
from tests.jobs.test_admin import operator  # noqa: F401


@pytest.fixture
def renamed(site, operator):  # noqa: F811
    """Posts the page with another name for its memory."""

    def post():
        data = fields_of(operator.get(page(site.environment)))
        prefix = row(data, "ram")
        data["price_lists-0-prices"] = "cpu 0.01"
        return operator.post(page(site.environment), data | {f"{prefix}slug": "memory"})

    return post


def names(environment) -> list[str]:
    return sorted(environment.resources.values_list("slug", flat=True))


def test_a_resource_keeps_its_name_while_jobs_ask_for_it(site, user, account, renamed):
    running = submit(user)
    take(running)
    waiting = submit(user)
    version = Environment.objects.get().version
    told = (
        "{} jobs that wait or run were admitted with ram, and could not start again with memory; wait for them or"
        " cancel them."
    )
    assert errors(renamed())["ram.slug"] == [told.format(2)]
    assert (names(site.environment), Environment.objects.get().version) == (["cpu", "disk", "ram"], version)
    assert site.environment.edits.count() == 1
    cancel(waiting, by="ada")
    assert errors(renamed())["ram.slug"] == [told.format(1)]


def test_without_jobs_it_is_renamed(site, user, account, renamed):
    cancel(submit(user), by="ada")
    assert renamed().status_code == 302
    assert names(site.environment) == ["cpu", "disk", "memory"]
