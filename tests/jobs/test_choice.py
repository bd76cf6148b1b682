"""Which environment a selector comes to, and how it says why."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError

from compute_site.core.errors import NothingMatches
from environments.models import AccessRule, Engine, Environment
from environments.setup import create_environment
from jobs.admission import admit
from jobs.models import Job, JobEvent
from jobs.spec import read_spec
from tests.factories import Site, make_account, submit, take


@pytest.fixture
def dear(site: Site) -> Environment:
    """Beside `local/main` (1 credit): `local/dear` at 2 credits, two cores, labelled."""
    return create_environment(
        site.engine, "dear", cpu="4-5", ram_mib=2048, disk_mib=1000, prices={"cpu": 2}, labels={"gpu": "a100"}
    )


def select(user, key: str = "", **fields) -> Job:
    selector = {
        name: fields.pop(name)
        for name in ("labels", "architecture", "max_price_per_minute", "currency")
        if name in fields
    }
    request = {"selector": selector, "command": ["true"], **fields}
    return admit(user=user, spec=read_spec(request), idempotency_key=key)[0]


def chosen_by(user, **fields) -> dict[str, Any]:
    found: dict[str, Any] | None = select(user, **fields).chosen
    assert found is not None
    return found


def refused(user, **fields) -> list[str]:
    before = Job.objects.count(), JobEvent.objects.count()
    with pytest.raises(NothingMatches) as caught:
        select(user, **fields)
    assert (Job.objects.count(), JobEvent.objects.count()) == before
    assert (caught.value.status, caught.value.field) == (422, "selector")
    return list(caught.value.details) or [str(caught.value)]


def test_the_cheapest_that_can_start_now(site, user, account, dear):
    job = select(user)
    job.refresh_from_db()
    assert job.environment == site.environment
    assert job.chosen == {
        "environment": "local/main",
        "because": "the cheapest of 2 that can start it now; 1 credit per minute",
        "others": [{"environment": "local/dear", "why_not": "dearer: 2 credit per minute"}],
    }
    queued, chosen = job.events.all()
    assert (queued.kind, chosen.kind, chosen.data) == ("queued", "chosen", job.chosen)
    assert chosen.message == "local/main: the cheapest of 2 that can start it now; 1 credit per minute"


def test_one_that_can_start_now_before_a_cheaper_one(site, user, account, dear):
    take(submit(user, resources={"cpu": 4}))
    assert select(user).chosen == {
        "environment": "local/dear",
        "because": "the only one that can start it now; 2 credit per minute",
        "others": [
            {
                "environment": "local/main",
                "why_not": "cannot start it now: needs 1 cpu, 0 free; 1 credit per minute",
            }
        ],
    }


def test_else_the_shortest_line(site, user, account, dear):
    (
        take(submit(user, resources={"cpu": 4})),
        take(submit(user, environment="local/dear", resources={"cpu": 2})),
    )
    submit(user), submit(user), submit(user, environment="local/dear")
    assert select(user).chosen == {
        "environment": "local/dear",
        "because": "none can start it now; the shortest line, 1 job waits there; 2 credit per minute",
        "others": [
            {
                "environment": "local/main",
                "why_not": "cannot start it now: needs 1 cpu, 0 free; 2 jobs wait there; 1 credit per minute",
            }
        ],
    }


def test_of_a_very_long_line_no_number_is_made_up(site, user, account, monkeypatch):
    monkeypatch.setattr("jobs.line.LONGEST", 2)
    monkeypatch.setattr("jobs.choice.LONGEST", 2)
    for _ in range(4):
        submit(user)
    because = chosen_by(user)["because"]
    assert (
        because
        == "none can start it now; the shortest line, more than 2 jobs wait there; 1 credit per minute"
    )


def test_a_line_before_one_is_in_the_way_even_with_room(site, user, account, dear):
    submit(user)
    chosen = chosen_by(user)
    assert chosen["environment"] == "local/dear"
    assert chosen["others"][0]["why_not"] == "cannot start it now: 1 job waits there; 1 credit per minute"


def test_an_engine_without_a_worker_comes_last(site, user, account, dear):
    other = Engine.objects.create(host=site.host, name="other", endpoint="unix:///x")
    create_environment(other, "idle", cpu="6-7", ram_mib=512, disk_mib=1000, prices={"cpu": Decimal("0.5")})
    Engine.objects.filter(pk=other.pk).update(state="active")
    (
        take(submit(user, resources={"cpu": 4})),
        take(submit(user, environment="local/dear", resources={"cpu": 2})),
    )
    submit(user), submit(user, environment="local/dear")
    chosen = chosen_by(user)
    assert chosen["environment"] == "local/main"
    assert {
        "environment": "other/idle",
        "why_not": "cannot start it now: no live worker for engine other; nobody waits there; 0.5 credit per minute",
    } in chosen["others"]


def test_labels_architecture_and_price(site, user, account, dear):
    assert select(user, labels={"gpu": "a100"}).environment == dear
    assert select(user, architecture="amd64", max_price_per_minute="1").environment == site.environment
    site.environment.labels = {"gpu": "h100"}
    site.environment.save()
    assert refused(user, labels={"gpu": "b200"}) == [
        "local/dear: Label gpu is a100.",
        "local/main: Label gpu is h100.",
    ]
    assert refused(user, architecture="arm64") == [
        "local/dear: Its architecture is amd64.",
        "local/main: Its architecture is amd64.",
    ]
    assert refused(user, resources={"cpu": 2}, max_price_per_minute="1.5") == [
        "local/dear: It costs 4 credit per minute, more than 1.5.",
        "local/main: It costs 2 credit per minute, more than 1.5.",
    ]
    assert refused(user, currency="1:0xabc") == [
        "local/dear: This environment has no prices in 1:0xabc, so no such jobs.",
        "local/main: This environment has no prices in 1:0xabc, so no such jobs.",
    ]


def test_what_it_asks_must_be_there(site, user, account, dear):
    assert select(user, resources={"cpu": 4}).environment == site.environment
    told = refused(user, resources={"cpu": 5})
    assert told == [
        "local/dear: cpu: asked 5, at most 2 per job.",
        "local/main: cpu: asked 5, at most 4 per job.",
    ]
    assert chosen_by(user, tier="free")["others"] == [
        {"environment": "local/dear", "why_not": "This environment has no free tier."}
    ]


def test_what_the_account_cannot_pay_is_not_chosen(site, user, dear):
    make_account("poor", user, credit=Decimal(70))
    assert refused(user, max_duration=3600, labels={"gpu": "a100"})[0] == (
        "local/dear: This job needs a hold of 120 credit; the account has 70 free."
    )
    assert select(user, max_duration=3600).environment == site.environment


def test_the_job_s_terms_are_those_of_the_selector_s_currency(site, user, account):
    rich = create_environment(
        site.engine, "two", cpu="4-5", ram_mib=512, disk_mib=500, prices={"cpu": 3}, currency="1:0xabc"
    )
    price_list = rich.price_lists.create(currency="credit")
    price_list.prices.create(resource=rich.resources.get(slug="cpu"), per_minute=7)
    job = select(user, labels={}, resources={"cpu": 2}, max_price_per_minute="14")
    assert (job.environment, job.terms["currency"]) == (site.environment, "credit")
    Environment.objects.filter(pk=site.environment.pk).update(state="draining")
    job = select(user)
    assert (job.environment, job.terms["currency"], job.terms["prices"]) == (
        rich,
        "credit",
        {"cpu": "7.000000000000000000"},
    )
    assert job.chosen is not None
    assert job.chosen["others"] == [
        {"environment": "local/main", "why_not": "This environment is draining: it takes no new jobs."}
    ]


def test_what_the_caller_may_not_see_is_never_named(site, user, account, dear):
    AccessRule.objects.create(environment=dear, tier="paid", kind="group", value="staff")
    assert chosen_by(user)["others"] == []
    assert refused(user, labels={"gpu": "a100"}) == ["local/main: It has no label gpu."]
    Group.objects.create(name="staff").user_set.add(user)
    assert select(user, labels={"gpu": "a100"}).environment == dear
    AccessRule.objects.all().delete()
    AccessRule.objects.create(environment=dear, tier="paid", kind="user", value="ada")
    AccessRule.objects.create(environment=site.environment, tier="paid", kind="user", value="bob")
    assert select(user).environment == dear
    AccessRule.objects.filter(environment=dear).update(value="bob")
    assert refused(user) == ["No environment is open to you in the paid tier."]


def test_the_same_key_gives_the_same_choice(site, user, account, dear):
    first = select(user, key="k")
    take(submit(user, resources={"cpu": 4}))
    request = {"selector": {}, "command": ["true"]}
    again, replayed = admit(user=user, spec=read_spec(request), idempotency_key="k")
    assert (again, replayed, again.chosen) == (first, True, first.chosen)
    assert select(user, key="other").environment == dear


def test_what_is_kept_for_another_is_in_the_way(site, user, account):
    cheap = create_environment(
        site.engine, "cheap", cpu="6-7", ram_mib=16_000, disk_mib=1000, prices={"cpu": Decimal("0.1")}
    )
    take(submit(user, environment=str(cheap), resources={"ram": 10_000}))
    large = submit(user, resources={"ram": 8192})
    Job.objects.filter(pk=large.pk).update(passed_over_since=large.created_at - timedelta(days=1))
    assert chosen_by(user) == {
        "environment": "local/cheap",
        "because": "none can start it now; the shortest line, nobody waits there; 0.1 credit per minute",
        "others": [
            {
                "environment": "local/main",
                "why_not": "cannot start it now: 1 job waits there; 1 credit per minute",
            }
        ],
    }


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "environment"),
        ({"environment": "local/main", "selector": {}}, "selector"),
        ({"selector": []}, "selector"),
        ({"selector": {"x": 1}}, "selector/x"),
        ({"selector": {"labels": {"a": 1}}}, "selector/labels/a"),
        ({"selector": {"architecture": "AMD 64"}}, "selector/architecture"),
        ({"selector": {"max_price_per_minute": 1.5}}, "selector/max_price_per_minute"),
        ({"selector": {"max_price_per_minute": "-1"}}, "selector/max_price_per_minute"),
        ({"selector": {"max_price_per_minute": "NaN"}}, "selector/max_price_per_minute"),
        ({"selector": {"currency": ""}}, "selector/currency"),
    ],
)
def test_exactly_one_of_both_and_well_formed(fields, path):
    with pytest.raises(ValidationError) as caught:
        read_spec({"command": ["true"], **fields})
    assert list(caught.value.message_dict) == [path]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({"a": 1}, "a: found 1; enter a text"),
        ({"a": ""}, "a: found ''; enter a text"),
        ({"a b": "c"}, "'a b' is no name of a label"),
        (["a"], "Found ['a']; enter names with texts"),
        ({str(number): "x" for number in range(33)}, "Found 33 labels; keep at most 32."),
    ],
)
def test_labels_of_an_environment_are_short_texts(site, labels, told):
    site.environment.labels = labels
    with pytest.raises(ValidationError) as caught:
        site.environment.full_clean()
    assert caught.value.message_dict["labels"][0].startswith(told)
