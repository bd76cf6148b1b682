"""What the fleet serves makes no reservation: what runs there refuses to retire or disable it all the same."""

import threading

import pytest
from django.core.exceptions import ValidationError
from django.db import close_old_connections, transaction

from environments import editing
from environments.models import Engine, Environment
from jobs.cancellation import cancel
from jobs.retention import expire_queued
from tests.jobs.test_admin import operator  # noqa: F401
from workers.fleet.assignment import _make_unit, make_units
from workers.fleet.models import Unit
from workers.fleet.passes import run_pass
from workers.fleet.retiring import disable, retire
from workers.fsck import row_disagreements

pytestmark = pytest.mark.django_db


def state() -> str:
    return Environment.objects.get(slug="gpu").state


def test_it_is_refused_with_numbers_while_jobs_run(fleet, operator):  # noqa: F811
    fleet.job()
    running = fleet.job()
    make_units()
    fleet.job()
    with pytest.raises(ValidationError) as caught:
        retire(fleet.environment)
    (told,) = caught.value.message_dict["state"]
    assert told.startswith("2 jobs of fleet/gpu are with the fleet's workers; drain the environment and wait")
    page = f"/admin/fleet/fleetpolicy/retire/{fleet.environment.pk}/"
    for answer in (operator.get(page), operator.post(page)):
        assert answer.context_data["refused"] == [told]
    assert (state(), fleet.environment.edits.filter(state="retired").count()) == ("active", 0)
    running.refresh_from_db()
    assert running.status == "preparing"


def test_its_engine_is_not_disabled_while_jobs_run(fleet, operator):  # noqa: F811
    engine = fleet.environment.engine
    job = fleet.job()
    run_pass()
    fleet.job()
    version = Engine.objects.get(pk=engine.pk).version
    with pytest.raises(ValidationError) as caught:
        disable(engine)
    (told,) = caught.value.message_dict["state"]
    assert told == "1 jobs of fleet are with the fleet's workers; drain it and wait, then try again."
    button = operator.get(f"/admin/environments/engine/{engine.pk}/disable/")
    assert button.url == f"/admin/fleet/fleetpolicy/disable/{engine.pk}/"
    for answer in (operator.get(button.url), operator.post(button.url)):
        assert answer.context_data["refused"] == [told]
    row = Engine.objects.get(pk=engine.pk)
    assert (row.state, row.version) == ("active", version)
    editing.drain_engine(engine)
    cancel(job, by="ada")
    run_pass()
    assert operator.post(button.url).url == f"/admin/environments/engine/{engine.pk}/change/"
    assert Engine.objects.get(pk=engine.pk).state == "disabled"


def test_an_engine_that_was_disabled_meanwhile_begins_nothing(fleet):
    """The list of queued jobs was read before."""
    job = fleet.job()
    disable(fleet.environment.engine)
    assert (_make_unit(job.pk, fleet.environment.pk), Unit.objects.count()) == (False, 0)


def test_drained_and_ended_it_goes(fleet):
    job = fleet.job()
    run_pass()
    editing.drain(fleet.environment)
    cancel(job, by="ada")
    run_pass()
    retire(fleet.environment)
    assert state() == "retired"


def test_where_the_audits_run_is_not_retired(fleet, operator):  # noqa: F811
    """By the button; what passed it by is told by fsck, and is not chosen again."""
    place = fleet.policy.audit_environment
    before = Environment.objects.values().get(pk=place.pk)
    page = f"/admin/fleet/fleetpolicy/retire/{place.pk}/"
    (told,) = operator.post(page).context_data["refused"]
    assert told == (
        "The fleet's audits of fleet/gpu run on local/main; name another audit environment in its fleet policy, or"
        " retire fleet/gpu first."
    )
    assert Environment.objects.values().get(pk=place.pk) == before
    editing.retire(place)
    assert "fleet policy of gpu: its audits run on main, which is retired" in list(row_disagreements())
    with pytest.raises(
        ValidationError, match="local/main is retired: no audit would run there; choose another"
    ):
        fleet.policy.full_clean()


def test_the_audits_of_what_is_retired_keep_nothing(fleet):
    retire(fleet.environment)
    retire(fleet.policy.audit_environment)
    assert not Environment.objects.exclude(state="retired").exists()
    assert not list(row_disagreements())


def test_what_was_queued_in_a_retired_one_expires_and_becomes_no_unit(fleet):
    job = fleet.job()
    retire(fleet.environment)
    assert (make_units(), Unit.objects.count()) == (0, 0)
    assert expire_queued() == 1
    job.refresh_from_db()
    assert job.status == "expired"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("which", ["environment", "engine"])
def test_a_job_that_begins_meanwhile_is_counted(transactional_fleet, which):
    """Whoever retires or disables waits for the unit that is being made, and then sees it."""
    job = transactional_fleet.job()
    refused = []
    environment = Environment.objects.get(slug="gpu")

    def retiring() -> None:
        try:
            retire(environment) if which == "environment" else disable(environment.engine)
        except ValidationError as error:
            refused.append(error)
        finally:
            close_old_connections()

    with transaction.atomic():
        assert make_units() == 1
        thread = threading.Thread(target=retiring)
        thread.start()
        thread.join(timeout=0.5)
        assert thread.is_alive()
    thread.join(timeout=10)
    assert (len(refused), state(), Engine.objects.get(name="fleet").state) == (1, "active", "active")
    job.refresh_from_db()
    assert job.status == "preparing"
