"""A sign of life is given for work that succeeded, and for nothing else."""

from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from celery.beat import SchedulingError
from celery.schedules import schedule

from compute_site.beat import Scheduler
from compute_site.core.pulse import pulse
from compute_site.schedule import BEAT_SCHEDULE
from workers.tasks import show_pulse


@pytest.fixture
def file(settings: Any, tmp_path: Path) -> Path:
    settings.PULSE_FILE = str(tmp_path / "pulse")
    return tmp_path / "pulse"


def test_a_pulse_renews_the_file(file: Path) -> None:
    pulse()
    before = file.stat().st_mtime_ns
    pulse()
    assert file.stat().st_mtime_ns > before


def test_without_a_file_nothing_happens(settings: Any) -> None:
    settings.PULSE_FILE = ""
    pulse()


def test_the_site_s_worker_shows_the_knocks_that_it_hears(file: Path) -> None:
    assert BEAT_SCHEDULE["pulse"]["task"] == show_pulse.name
    show_pulse()
    assert file.exists()


def test_beat_shows_the_knocks_that_it_sent(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(current_app, lazy=True)
    entry = scheduler.Entry(name="pulse", task=show_pulse.name, schedule=schedule(10), app=current_app)

    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError("no broker")

    monkeypatch.setattr(show_pulse, "apply_async", refused)
    with pytest.raises(SchedulingError, match="no broker"):
        scheduler.apply_async(entry, advance=False)
    assert not file.exists()
    monkeypatch.setattr(show_pulse, "apply_async", lambda *args, **kwargs: None)
    scheduler.apply_async(entry, advance=False)
    assert file.exists()
