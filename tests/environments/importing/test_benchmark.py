"""Ocean Node's `enableBenchmark`: the switch of the engine, written back by an export; no environment of the file."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from environments.importing import Choice, export_engine, import_configuration
from environments.models import Engine, Environment
from tests.environments.importing.conftest import nested, offer, run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def terms(settings: Any) -> None:
    settings.BENCHMARK_SECONDS, settings.BENCHMARK_CURRENCY = 120, "credit"
    settings.BENCHMARK_CORE_PRICE, settings.BENCHMARK_USERS = "0", ["monitor"]


def states() -> dict[str, str]:
    return dict(Environment.objects.values_list("slug", "state"))


def test_the_key_sets_the_switch_and_the_way_back_is_the_same(engine):
    run(nested(offer(), enableBenchmark=True))
    engine.refresh_from_db()
    assert engine.enable_benchmark
    assert states() == {"a": "active", "benchmark": "active"}
    exported = export_engine(engine)
    assert exported["enableBenchmark"] is True
    assert [row["id"] for row in exported["environments"]] == ["a"]
    plan = import_configuration([exported], Choice(replace=True))
    assert not plan.changes_anything
    assert states() == {"a": "active", "benchmark": "active"}


def test_without_the_key_it_stays_and_false_retires_it(engine):
    run(nested(offer(), enableBenchmark=True))
    run(nested(offer()))
    assert Engine.objects.get().enable_benchmark
    run(nested(offer(), enableBenchmark=False))
    assert not Engine.objects.get().enable_benchmark
    assert states()["benchmark"] == "retired"


def test_missing_settings_are_a_note(engine, settings):
    settings.BENCHMARK_USERS = []
    plan = run(nested(offer(), enableBenchmark=True))
    assert [note.path for note in plan.notes if "BENCHMARK_USERS" in note.message] == ["[0].enableBenchmark"]
    assert states() == {"a": "active"}


def test_a_value_that_is_none_and_its_own_id_are_refused(engine):
    with pytest.raises(ValidationError, match="true or false belongs here"):
        run(nested(offer(), enableBenchmark="yes"))
    run(nested(offer(), enableBenchmark=True))
    with pytest.raises(ValidationError, match="is kept by enableBenchmark"):
        run(nested(offer("benchmark")))
    assert states() == {"a": "active", "benchmark": "active"}
