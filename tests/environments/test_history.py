"""The history of an environment: one row for each edit, by every door, and the way back through the same rules."""

import json
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from compute_site.core.errors import TransitionRefused
from environments import editing
from environments.exporting import export_engine, export_environment
from environments.history import Author, configuration, find, record, values
from environments.importing import Choice, difference, import_configuration
from environments.models import Core, Door, Edit, Environment, Price, Resource
from environments.reverting import revert
from environments.setup import create_environment
from tests.environments.conftest import give_back, place_cores, take

OLGA = Author("olga", Door.PAGE, "more room")


def changed(edit: Edit) -> dict[str, tuple[str | None, str | None]]:
    """What this edit changed against the one before."""
    older = Edit.objects.filter(environment=edit.environment, pk__lt=edit.pk).first()
    assert older is not None
    return {one.path: (one.before, one.after) for one in difference(values(older), values(edit))}


def last(environment: Environment) -> Edit:
    return environment.edits.all()[0]


class TestDoors:
    def test_setup(self, environment):
        edit = environment.edits.get()
        assert (edit.by, edit.door, edit.comment, edit.slug, edit.state) == ("", "code", "", "main", "active")
        assert configuration(edit) == json.loads(edit.configuration, parse_float=Decimal)
        assert configuration(edit)["cpuCores"] == [0, 1, 2, 3]

    def test_one_edit_of_many_rows_is_one_row(self, environment):
        with editing.edited(environment, OLGA):
            Environment.objects.filter(pk=environment.pk).update(description="larger")
            Resource.objects.filter(environment=environment, slug="ram").update(total=9216)
            Price.objects.update(per_minute=Decimal("0.000000000000000001"))
            environment.free_tier.resources.filter(resource__slug="cpu").update(total=1, max=1)
        edit = last(environment)
        assert environment.edits.count() == 2
        assert (edit.by, edit.door, edit.comment) == ("olga", "page", "more room")
        assert changed(edit) == {
            "description": (None, "larger"),
            "resources[ram].total": ("8", "9"),
            "fees.credit[0].prices[cpu].price": ("1", "0.000000000000000001"),
            "free.resources[cpu].total": ("2", "1"),
            "free.resources[cpu].max": ("2", "1"),
        }

    def test_nothing_changed_is_no_row_unless_something_was_said(self, environment):
        with editing.edited(environment):
            pass
        assert environment.edits.count() == 1
        with editing.edited(environment, OLGA):
            pass
        assert environment.edits.count() == 2
        assert changed(last(environment)) == {}

    def test_a_refused_edit_leaves_no_row(self, environment):
        with pytest.raises(ValidationError):
            place_cores(environment, "0-99")
        with pytest.raises(TransitionRefused):
            editing.resume(environment)
        assert environment.edits.count() == 1

    def test_states(self, environment):
        by = Author("olga", Door.BUTTON)
        for move, state in (
            (editing.drain, "draining"),
            (editing.resume, "active"),
            (editing.retire, "retired"),
        ):
            move(environment, by)
            assert (last(environment).by, last(environment).state) == ("olga", state)
        assert changed(last(environment))["state"] == ("active", "retired")
        assert changed(last(environment))["cpuCores"] == ("0, 1, 2, 3", None)

    def test_what_was_changed_past_it_gets_a_row_of_its_own(self, environment):
        Resource.objects.filter(environment=environment, slug="ram").update(max=4096)
        with editing.edited(environment, OLGA):
            Environment.objects.filter(pk=environment.pk).update(description="x")
        edit, found, _ = environment.edits.all()
        assert changed(edit) == {"description": (None, "x")}
        assert (found.door, changed(found)) == ("found", {"resources[ram].max": ("8", "4")})

    def test_one_that_is_older_than_the_history(self, environment):
        Edit.objects.all().delete()
        find(environment)
        assert environment.edits.get().door == "found"
        assert record(environment, Author()) is None

    def test_import(self, environment, engine):
        whole = export_engine(engine)
        one = whole["environments"][0]
        one["description"] = "from a file"
        whole["environments"].append(
            {**one, "id": "two", "cpuCores": [4, 5], "resources": one["resources"][1:3]}
        )
        del whole["environments"][1]["free"], whole["environments"][1]["fees"]
        whole["environments"][1]["free"] = {"resources": []}
        by = Author("olga", Door.IMPORT)
        assert not import_configuration([whole], Choice(dry_run=True), by).applied
        assert Edit.objects.count() == 1
        import_configuration([whole], Choice(), by)
        assert changed(last(environment)) == {"description": (None, "from a file")}
        assert [edit.door for edit in Environment.objects.get(slug="two").edits.all()] == ["import"]
        import_configuration([whole], Choice(), by)
        assert Edit.objects.count() == 3
        del whole["environments"][0]
        import_configuration([whole], Choice(replace=True), by)
        assert (last(environment).by, last(environment).state) == ("olga", "retired")


class TestRevert:
    def test_back_and_forth(self, environment):
        first = last(environment)
        before = export_environment(environment)
        environment.labels = {"gpu": "h200"}
        with editing.edited(environment, OLGA):
            environment.save(update_fields=["labels"])
            Price.objects.update(per_minute=Decimal("0.123456789012345678"))
            environment.free_tier.delete()
            environment.resources.filter(slug="licence").delete()
            editing.place_cores(environment, "2-5")
        second = last(environment)
        after = export_environment(Environment.objects.get())
        version = Environment.objects.get().version
        plan = revert(first, OLGA, dry_run=True)
        assert not plan.applied
        assert export_environment(Environment.objects.get()) == after
        assert environment.edits.count() == 2
        assert revert(first, Author("olga", Door.REVERT), expected=plan.fingerprint).applied
        assert export_environment(Environment.objects.get()) == before
        assert last(environment).door == "revert"
        assert Environment.objects.get().version > version  # an open form is stale now
        revert(second, OLGA)
        assert export_environment(Environment.objects.get()) == after

    def test_refused_with_the_numbers_while_jobs_hold_what_it_takes_away(self, environment):
        first = last(environment)
        place_cores(environment, "0-7")
        with editing.edited(environment):
            environment.resources.filter(slug="ram").update(total=16_384, max=16_384)
        holder, _ = take(environment, cpu=6, ram=10_240)
        with pytest.raises(ValidationError) as refused:
            revert(first, OLGA)
        text = str(refused.value)
        assert "10240 are in use, 8192 would be left; drain the environment" in text
        assert "Cores 4-5 are held by running jobs" in text
        assert environment.cores.count() == 8
        assert environment.edits.count() == 3
        give_back(holder)
        assert revert(first, OLGA).applied
        assert environment.cores.count() == 4

    def test_refused_for_a_core_that_another_has_now(self, environment, engine):
        first = last(environment)
        place_cores(environment, "0-2")
        create_environment(engine, "other", cpu="3", ram_mib=64, disk_mib=64, prices={"cpu": 1})
        with pytest.raises(
            ValidationError, match=r"Core 3 belongs to local/other; take it out there first\."
        ):
            revert(first, OLGA)
        assert set(Core.objects.filter(environment=environment).values_list("index", flat=True)) == {0, 1, 2}

    def test_only_what_was_agreed_to_is_applied(self, environment):
        first = last(environment)
        place_cores(environment, "0-5")
        agreed = revert(first, OLGA, dry_run=True).fingerprint
        place_cores(environment, "0-4")
        assert not revert(first, OLGA, expected=agreed).applied
        assert environment.cores.count() == 5

    def test_slug_and_state_stay(self, environment):
        first = last(environment)
        with editing.edited(environment):
            Environment.objects.filter(pk=environment.pk).update(slug="renamed", description="x")
        editing.drain(environment)
        revert(first, OLGA)
        fresh = Environment.objects.get()
        assert (fresh.slug, fresh.state, fresh.description) == ("renamed", "draining", "")

    def test_not_of_a_retired_one(self, environment):
        first = last(environment)
        editing.retire(environment)
        with pytest.raises(ValidationError, match="is retired for good"):
            revert(first, OLGA)
        assert not environment.cores.exists()


def test_what_is_retired_stays_so(environment):
    first = last(environment)
    editing.retire(environment)
    with pytest.raises(ValidationError, match="main is retired for good: make a new environment"):
        revert(first, OLGA)
    assert Environment.objects.get().state == "retired"
    assert environment.edits.count() == 2
