"""Which environment a selector comes to, and how it says why."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError

from compute_site.core.db import database_now
from compute_site.core.errors import NothingMatches
from environments.models import AccessRule, Core, Device, Engine, Environment, Host, Slots
from environments.setup import create_environment
from jobs.admission import admit
from jobs.admission_reads import lock_account
from jobs.billing.ledger import top_up
from jobs.billing.models import Membership
from jobs.choice import choose
from jobs.models import Job, JobEvent
from jobs.spec import read_spec
from tests.admin.rows import Statements
from tests.factories import Site, client_of, make_account, make_user, submit, take


@pytest.fixture
def dear(site: Site) -> Environment:
    """Beside `local/main` (1 credit): `local/dear` at 2 credits, two cores, labelled."""
    return create_environment(
        site.engine, "dear", cpu="4-5", ram_mib=2048, disk_mib=1000, prices={"cpu": 2}, labels={"gpu": "a100"}
    )


@pytest.fixture
def statements(monkeypatch) -> Statements:
    return Statements(monkeypatch)


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
    assert (queued.kind, chosen.kind, chosen.data) == (
        "queued",
        "chosen",
        {name: job.chosen[name] for name in ("environment", "because")},
    )
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


def test_a_place_where_waiting_cannot_help_comes_last(site, user, account):
    """`local/gpus` has nobody in line, but one of its two devices is unhealthy."""
    other = Engine.objects.create(host=site.host, name="other", endpoint="unix:///x")
    for number in range(4):
        health = "unhealthy" if number == 1 else "healthy"
        Device.objects.create(host=site.host, uuid=f"GPU-{number}", model="H200", health=health)
    for engine, slug, cores, devices in ((site.engine, "gpus", "4-5", "01"), (other, "later", "6-7", "23")):
        create_environment(
            engine, slug, cpu=cores, ram_mib=512, disk_mib=1000, prices={"gpu": 1},
            devices={"gpu": [f"GPU-{number}" for number in devices]},
        )  # fmt: skip
    Engine.objects.update(state="active", worker_seen_at=database_now() + timedelta(days=1))
    submit(user, environment="other/later", resources={"gpu": 2})
    chosen = chosen_by(user, resources={"gpu": 2})
    assert chosen["environment"] == "other/later"
    assert chosen["others"][0] == {
        "environment": "local/gpus",
        "why_not": "cannot start it now: needs 2 gpu, 1 free, 1 unhealthy: there are only 1; nobody waits there;"
        " 2 credit per minute",
    }


def test_the_same_is_in_the_way_as_its_pending_reason_tells(site, user, account, dear):
    Slots.objects.create(engine=site.engine, cores={0, 1, 2, 4}, devices=set(), holder="narrow")
    assert chosen_by(user, resources={"cpu": 2}) == {
        "environment": "local/main",
        "because": "the only one that can start it now; 2 credit per minute",
        "others": [
            {
                "environment": "local/dear",
                "why_not": "cannot start it now: no live worker has slots for 2 cpu, at most 1; 4 credit per minute",
            }
        ],
    }


def test_a_thousand_environments_cost_as_many_statements_as_one(site, user, account, statements):
    Host.objects.update(cpu_count=48)
    Core.objects.bulk_create(Core(host=site.host, index=index) for index in range(8, 48))
    take(submit(user, resources={"cpu": 4}))
    late = submit(user, resources={"cpu": 4})
    Job.objects.update(passed_over_since=late.created_at - timedelta(days=1))  # so that something is kept
    counts = []
    for first, last in ((8, 11), (11, 38)):
        for core in range(first, last):
            create_environment(
                site.engine, f"more-{core}", cpu=str(core), ram_mib=512, disk_mib=99, prices={"cpu": 1}
            )
        _, count = statements.of(lambda: select(user))
        counts.append(count)
    assert counts[0] == counts[1] < 60


def chosen_how_often(monkeypatch) -> list[str]:
    """The environments that are chosen from now on, one after the other, for whatever job."""
    found: list[str] = []

    def noted(*asked):
        choice = choose(*asked)
        found.append(str(choice.environment))
        return choice

    monkeypatch.setattr("jobs.admission.choose", noted)
    return found


def test_under_the_account_s_lock_only_the_chosen_one_is_looked_at_again(
    site, user, account, dear, monkeypatch
):
    found = chosen_how_often(monkeypatch)
    assert select(user).environment == site.environment
    assert found == ["local/main"]


@pytest.mark.parametrize("change", ["line", "price", "access"])
def test_what_changed_until_then_is_chosen_anew(site, user, account, dear, monkeypatch, change):
    def late_lock(*asked):
        locked = lock_account(*asked)
        if change == "line":
            Job.objects.update(cancel_requested_at=None, cancel_reason="")
        elif change == "price":
            site.environment.price_lists.get().prices.update(per_minute=3)
        else:
            AccessRule.objects.create(environment=site.environment, tier="paid", kind="user", value="bob")
        return locked

    waiting = submit(user)
    Job.objects.filter(pk=waiting.pk).update(
        cancel_requested_at=waiting.created_at, cancel_reason="cancelled"
    )
    found = chosen_how_often(monkeypatch)
    monkeypatch.setattr("jobs.admission.lock_account", late_lock)
    assert select(user).environment == dear
    assert found == ["local/main", "local/dear"]


def test_a_token_is_the_same_however_its_address_is_written(site, user, account):
    listed = create_environment(
        site.engine, "token", cpu="4-5", ram_mib=512, disk_mib=500, prices={"cpu": 3}, currency="1:0xAbC"
    )
    top_up(account, Decimal(1000), "1:0xAbC", reference="for the token")
    job = select(user, currency="1:0xaBc")
    assert (job.environment, job.terms["currency"], job.hold.currency) == (listed, "1:0xAbC", "1:0xAbC")
    twice = listed.price_lists.create(currency="1:0xaBc")
    twice.prices.create(resource=listed.resources.get(slug="cpu"), per_minute=0)
    assert select(user, currency="1:0xaBc").terms["currency"] == "1:0xaBc"


class TestWhatOthersOfTheAccountRead:
    """Ada submits, and may use more than Bob, who is of the same account."""

    @pytest.fixture
    def bob(self, account, dear):
        AccessRule.objects.create(environment=dear, tier="paid", kind="user", value="ada")
        bob = make_user("bob")
        Membership.objects.create(account=account, user=bob)
        return bob

    def test_they_are_told_how_many_they_may_not_see(self, site, user, bob):
        job = select(user, key="k")
        others = [{"environment": "local/dear", "why_not": "dearer: 2 credit per minute"}]
        path = f"/api/v1/jobs/{job.public_id}"
        told = client_of(user).get(path).json()["chosen"]
        assert (told["others"], told["not_shown"]) == (others, 0)
        api = client_of(bob)
        again = {"selector": {}, "command": ["true"]}
        for response in (
            api.get(path),
            api.post(f"{path}/cancel"),
            api.post("/api/v1/jobs", again, headers={"Idempotency-Key": "k"}),
        ):
            told = response.json()["chosen"]
            assert (told["others"], told["not_shown"]) == ([], 1)
            assert told["because"].startswith("the cheapest of 2 ")
        assert "local/dear" not in api.get(f"{path}/events").content.decode()
        AccessRule.objects.all().delete()
        assert api.get(path).json()["chosen"]["others"] == others

    def test_what_was_told_to_somebody_stays_readable_for_them(self, site, user, bob):
        job = select(user)
        AccessRule.objects.update(value="carol")
        told = client_of(user).get(f"/api/v1/jobs/{job.public_id}").json()["chosen"]
        assert (len(told["others"]), told["not_shown"]) == (1, 0)


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
