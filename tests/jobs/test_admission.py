"""Admission: the terms, every refusal with nothing written, and one job for one key."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, connections
from django.utils import timezone

from compute_site.core.errors import IdempotencyConflict, NotAdmitted, QuotaExceeded
from environments.editing import declare_gone
from environments.models import FreeTier, PriceList
from jobs.admission import admit
from jobs.models import IdempotencyKey, Job, JobEvent
from jobs.spec import read_spec
from tests.factories import Site, make_account, make_user, submit


def counts() -> tuple[int, int, int]:
    return Job.objects.count(), JobEvent.objects.count(), IdempotencyKey.objects.count()


def refused(kind, user, **fields):
    before = counts()
    with pytest.raises(kind) as caught:
        submit(user, key="k", **fields)
    assert counts() == before
    return caught.value


def test_a_job_is_queued_with_its_terms(site: Site, user, account, settings):
    site.environment.max_queue_wait = 900
    site.environment.save()
    job = submit(
        user, resources={"cpu": 2, "ram": "1GiB"}, max_duration=120, labels={"a": "b"}, max_queue_wait=1000
    )
    job.refresh_from_db()
    assert (job.status, job.account, job.submitted_by, job.max_duration) == ("queued", account, user, 120)
    assert job.terms == {
        "resources": {"cpu": 2, "ram": 1024, "disk": 64},
        "kinds": {"cpu": "cpu", "ram": "ram", "disk": "disk"},
        "tier": "paid",
        "currency": "credit",
        "prices": {"cpu": "1.000000000000000000"},
        "min_job_duration": 60,
        "max_job_duration": 3600,
        "max_queue_wait": 900,
        "network": False,
        "storage_expiry": 604_800,
        "max_attempts": 3,
        "log_cap": settings.LOG_CAP_BYTES,
    }
    assert job.queue_expires_at == job.created_at + timedelta(seconds=900)
    assert [event.kind for event in job.events.all()] == ["queued"]
    assert job.labels == {"a": "b"}


def test_the_terms_do_not_follow_the_environment(site: Site, user, account):
    job = submit(user)
    site.environment.price_lists.all().delete()
    site.environment.storage_expiry = 10_000
    site.environment.save()
    job.refresh_from_db()
    assert job.terms["prices"] == {"cpu": "1.000000000000000000"}
    assert job.terms["storage_expiry"] == 604_800


def test_a_free_job_has_the_limits_of_the_free_tier_and_no_prices(site: Site, user, account):
    FreeTier.objects.update(max_job_duration=50, min_job_duration=10, storage_expiry=77)
    job = submit(user, tier="free")
    assert (job.max_duration, job.terms["storage_expiry"], job.terms["prices"]) == (50, 77, {})
    assert "max_duration" in refused(ValidationError, user, tier="free", max_duration=51).message_dict


def test_the_environment_may_be_named_by_its_id(site: Site, user, account):
    assert submit(user, environment=str(site.environment.public_id)).environment == site.environment


@pytest.mark.parametrize("name", ["local/other", "other/main", "0191e4a2-0000-7000-8000-000000000001"])
def test_an_unknown_environment_is_refused(site: Site, user, account, name):
    assert "environment" in refused(ValidationError, user, environment=name).message_dict


@pytest.mark.parametrize(("state", "kind"), [("draining", NotAdmitted), ("retired", ValidationError)])
def test_only_an_active_environment_takes_jobs(site: Site, user, account, state, kind):
    site.environment.state = state
    site.environment.save()
    refused(kind, user)


@pytest.mark.parametrize("state", ["draining", "disabled"])
def test_only_an_active_engine_takes_jobs(site: Site, user, account, state):
    site.engine.state = state
    site.engine.save()
    assert refused(NotAdmitted, user).code == "engine_not_active"


def test_a_host_that_is_gone_takes_no_jobs(site: Site, user, account):
    declare_gone(site.host, "olga")
    assert refused(NotAdmitted, user).code == "host_gone"


def test_a_tier_that_is_not_offered_is_refused(site: Site, user, account):
    PriceList.objects.all().delete()
    assert refused(NotAdmitted, user).code == "tier_not_offered"
    FreeTier.objects.all().delete()
    assert refused(NotAdmitted, user, tier="free").field == "tier"


def test_too_much_is_refused(site: Site, user, account):
    assert "cpu" in refused(ValidationError, user, resources={"cpu": 5}).message_dict["resources"][0]
    assert "gpu" in refused(ValidationError, user, resources={"gpu": 1}).message_dict["resources"][0]
    assert "max_duration" in refused(ValidationError, user, max_duration=3601).message_dict


def test_whose_account(site: Site, user, account):
    other = make_account("other's", make_user("bob"))
    assert "account" in refused(ValidationError, user, account=str(other.public_id)).message_dict
    assert "account" in refused(ValidationError, make_user("carl")).message_dict
    second = make_account("second", user)
    assert "account" in refused(ValidationError, user).message_dict
    assert submit(user, account=str(second.public_id)).account == second
    with pytest.raises(ValidationError):
        admit(user=user, account=other, spec=read_spec({"environment": "local/main"}))


def test_a_closed_account_admits_nothing(site: Site, user, account):
    account.closed_at = timezone.now()
    account.save()
    assert refused(NotAdmitted, user).code == "account_closed"


def test_the_quota_counts_queued_jobs_of_the_account_alone(site: Site, user, account, settings):
    settings.MAX_QUEUED_JOBS_PER_ACCOUNT = 2
    submit(user), submit(user)
    assert refused(QuotaExceeded, user).status == 429
    bob = make_user("bob")
    make_account("bob's", bob)
    submit(bob)


def test_one_key_one_job(site: Site, user, account):
    job = submit(user, key="k")
    site.environment.state = "draining"
    site.environment.save()
    again, replayed = admit(
        user=user, spec=read_spec({"command": ["true"], "environment": "local/main"}), idempotency_key="k"
    )
    assert (again, replayed) == (job, True)
    refused(IdempotencyConflict, user, command=["false"])


def test_keys_of_two_accounts_are_two_keys(site: Site, user, account):
    bob = make_user("bob")
    make_account("bob's", bob)
    assert submit(user, key="k") != submit(bob, key="k")


def test_few_statements(site: Site, user, account, django_assert_max_num_queries):
    submit(user, key="warm")
    with django_assert_max_num_queries(11):  # nine, and the savepoint within the test's own transaction
        submit(user, key="k")


@pytest.mark.django_db(transaction=True)
def test_fifty_sends_at_once_make_one_job(site: Site, user, account):
    def send(number: int) -> int:
        try:
            return submit(user, key="k").pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        keys = set(pool.map(send, range(50)))
    assert len(keys) == 1
    assert counts() == (1, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_the_quota_holds_against_many_sends_at_once(site: Site, user, account, settings):
    settings.MAX_QUEUED_JOBS_PER_ACCOUNT = 3

    def send(number: int) -> bool:
        try:
            submit(user)
            return True
        except QuotaExceeded:
            return False
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(send, range(16))) == 3
    assert Job.objects.count() == 3
    assert not connection.in_atomic_block
