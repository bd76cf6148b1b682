"""Ways in which accounts of shared machines were seen to go wrong elsewhere; each has a test of ours that names it.

| what went wrong | tested by |
|---|---|
| a configuration from a variable was not validated | below |
| a job that had waited in the queue used nothing once started | below |
| a free tier with only `max` admitted any number of jobs | importing/test_import.py: the_free_part_is_never_unlimited, and below |
| two queued jobs started in one pass over capacity | below |
| a GPU in two environments was given out twice | environments/test_reservations.py: a_device_in_two_environments_is_held_once |
| a device under two resource names was given out twice | environments/test_rules.py: one_device_in_two_resources; api/test_shared_devices.py |
| a job that asked for one device got both | environments/test_reservations.py: claims_exactly_what_was_asked_by_row |
| core ids that the host does not have | environments/test_editing.py: wrong_cores, cores_beyond_the_hosts_count_do_not_exist |
| 1.5 cores took all cores, the next job was unpinned | below |
| the amount "abc" switched a limit off | environments/test_reservations.py: wrong_amounts_are_refused; importing/test_wrong_values.py |
| an unknown resource was ignored, and paid for | below |
| a database error was read as "all free" | below |
| a list of allowed addresses without access lists was open to all | below |
| addresses were compared with their case | jobs/test_access.py: an_address_means_the_same_in_any_case |
| an environment's id changed with its prices | below |
| the limit of paid jobs counted free ones | environments/test_reservations.py: max_jobs_of_each_tier_alone |
| negative or absurd waits were told | jobs/test_pending.py; environments/test_reservations.py: free_is_never_negative_and_shown_capped |
| each engine of a host began at core 0 | importing/test_engines.py: two_engines_of_one_host_share_its_cores |
"""

import json

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction

from environments import use
from environments.importing import import_configuration
from environments.models import Core, Environment, Reservation
from environments.reservations import free_amounts
from jobs.models import Attempt, Job
from tests.factories import submit
from workers import lifecycle, scheduling

FEES = {"credit": [{"prices": [{"id": "cpu", "price": 1}]}]}


def offer(**more):
    """Two of the four cores that are nobody's, 1 GiB of memory and of disk, one price."""
    resources = [{"id": "cpu", "total": 2}, {"id": "ram", "total": 1}, {"id": "disk", "total": 1}]
    return {"id": "offer", "resources": resources, "fees": FEES, **more}


def imported(entry) -> Environment:
    import_configuration(json.dumps([{"environments": [entry]}]).encode())
    return Environment.objects.get(slug="offer")


def take(site, times: int = 1) -> list[Attempt]:
    """What a worker gets when it looks that often."""
    worker = lifecycle.register(site.engine)
    found = [scheduling.take(site.engine, worker) for _ in range(times)]
    return [taken.attempt for taken in found if taken is not None]


def in_use(environment) -> dict[str, int]:
    return {slug: found.used for slug, found in free_amounts([environment])[environment.pk].items()}


def test_a_configuration_from_a_variable_is_validated_like_any_other(site, settings):
    settings.DOCKER_COMPUTE_ENVIRONMENTS = json.dumps([{"environments": [offer(storageExpiry=1)]}])
    with pytest.raises(CommandError, match="storageExpiry: 1 s is shorter than"):
        call_command("import_environments", from_settings=True)
    assert list(Environment.objects.all()) == [site.environment]


def test_a_job_that_waited_in_the_queue_counts_from_its_reservation_on(site, user, account):
    job = submit(user, resources={"cpu": 4, "ram": 8192})
    waiting = submit(user, resources={"cpu": 1})
    assert in_use(site.environment) == {"cpu": 0, "ram": 0, "disk": 0}
    (attempt,) = take(site)
    assert attempt.job == job
    assert in_use(site.environment) == {"cpu": 4, "ram": 8192, "disk": 64}
    assert take(site) == []
    waiting.refresh_from_db()
    assert waiting.status == "queued"


def test_a_free_tier_that_names_only_a_max_runs_no_more_than_that(site, user, account):
    free = {"resources": [{"id": name, "max": 1} for name in ("cpu", "ram", "disk")], "maxJobs": 9}
    environment = imported(offer(free=free))
    for _ in range(2):
        submit(user, environment="local/offer", tier="free")
    assert len(take(site, 2)) == 1
    assert in_use(environment)["cpu"] == 1


def test_two_queued_jobs_are_not_both_started_where_one_fits(site, user, account):
    for _ in range(2):
        submit(user, resources={"ram": 5000})
    assert len(take(site, 3)) == 1
    assert in_use(site.environment)["ram"] == 5000
    assert Job.objects.filter(status="queued").count() == 1


def test_one_and_a_half_cores_take_nothing_and_the_next_job_is_pinned(site, user, account):
    with pytest.raises(ValidationError, match=r"cpu.*Not a whole number"):
        submit(user, resources={"cpu": 1.5})
    assert not Job.objects.exists()
    submit(user)
    (attempt,) = take(site)
    assert attempt.cores == [0]


def test_an_unknown_resource_is_refused_and_nobody_pays_for_it(site, user, account):
    with pytest.raises(ValidationError, match="gpu: no such resource here"):
        submit(user, resources={"gpu": 1})
    assert not Job.objects.exists()


@pytest.mark.parametrize("broken", ["USE_SQL", "CLAIM_SQL"])
def test_a_database_error_is_not_read_as_all_free(site, user, account, monkeypatch, broken):
    submit(user)
    where = use if broken == "USE_SQL" else "environments.reservations"
    if broken == "USE_SQL":
        monkeypatch.setattr(where, broken, "SELECT * FROM no_such_table WHERE 1 {choice}")
        with pytest.raises(DatabaseError), transaction.atomic():
            free_amounts([site.environment])
    else:
        monkeypatch.setattr(f"{where}.{broken}", "SELECT 1 / 0")
    with pytest.raises(DatabaseError), transaction.atomic():
        take(site)
    assert not Reservation.objects.exists()
    assert not Attempt.objects.exists()
    assert Job.objects.get().status == "queued"


def test_a_list_of_addresses_without_access_lists_is_closed_to_all_others(site, user, account):
    imported(offer(access={"addresses": ["0xAB"]}))
    with pytest.raises(ValidationError, match="There is no such environment"):
        submit(user, environment="local/offer")
    assert not Job.objects.exists()


def test_new_prices_make_no_new_environment_and_its_jobs_stay(site, user, account):
    environment = imported(offer())
    job = submit(user, environment="local/offer")
    dearer = {"credit": [{"prices": [{"id": "cpu", "price": 5}]}]}
    again = imported(offer(fees=dearer))
    assert (again.pk, again.public_id, again.slug) == (environment.pk, environment.public_id, "offer")
    assert list(again.jobs.all()) == [job]
    (attempt,) = take(site)
    assert attempt.job == job
    assert attempt.job.terms["prices"] == {"cpu": "1.000000000000000000"}
    assert Core.objects.filter(environment=again).count() == 2
