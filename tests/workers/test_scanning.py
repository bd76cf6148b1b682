"""The scan policy of an engine with a real script as the scanner, which asks the real engine."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compute_site.core.db import database_now
from environments.models import Engine
from jobs.billing.models import Hold
from jobs.cancellation import cancel
from jobs.models import Attempt, Job, JobEvent
from tests.factories import submit
from tests.faults.processes import eventually
from tests.workers.images_on_engine import *  # noqa: F403 - fixtures are found by their names here
from tests.workers.images_on_engine import Place, again
from workers import runner
from workers.models import Image, ImageScan
from workers.steps import Run

pytestmark = pytest.mark.engine

# Asks the engine at DOCKER_HOST for the image that it is called with, notes it, and ends as the test wants.
SCANNER = """
import http.client, json, os, socket, sys, time
from pathlib import Path
folder, image = Path(sys.argv[1]), sys.argv[2]
with (folder / "asked").open("a") as asked:
    asked.write(image + "\\n")
while (folder / "wait").exists():
    time.sleep(0.02)
connection = http.client.HTTPConnection("engine")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
connection.request("GET", f"/images/{image}/json")
print("scanned", json.load(connection.getresponse())["Config"]["Cmd"][0].strip("/"), "of", __file__)
print("CVE-2026-1 critical")
sys.exit(int((folder / "status").read_text()))
"""


class Scanner:
    """What the scanner is to do, and how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scanner.py").write_text(SCANNER)
        self.command = [sys.executable, str(folder / "scanner.py"), str(folder), "{image}"]

    def ends(self, status: int) -> None:
        (self.folder / "status").write_text(str(status))

    def hold(self) -> None:
        (self.folder / "wait").touch()

    def let_go(self) -> None:
        (self.folder / "wait").unlink()

    @property
    def asked(self) -> list[str]:
        notes = self.folder / "asked"
        return notes.read_text().split() if notes.exists() else []


@pytest.fixture
def scanner(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    made = Scanner(tmp_path)
    settings.IMAGE_SCAN_COMMAND = made.command
    monkeypatch.setattr("workers.beside.LOOK", 0.05)
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keys of the attempts that came to step 5. Nothing is started or cleaned."""
    keys: list[int] = []
    monkeypatch.setattr(runner, "prepare_and_start", lambda run, image: keys.append(run.attempt.pk))
    monkeypatch.setattr(runner, "clean", lambda run: None)
    monkeypatch.setattr(runner, "nudge", lambda engine: None)
    return keys


def begin(run: Run) -> Attempt:
    """Steps 4 on, until the attempt has come to step 5 or ended."""
    runner.advance(run)
    return Attempt.objects.get(pk=run.attempt.pk)


def policy(place: Place, value: str) -> None:
    """An edit while the worker runs: its own row of the engine stays as it was."""
    Engine.objects.filter(pk=place.engine.pk).update(scan_policy=value)


def refused(attempt: Attempt) -> None:
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.status, job.end_reason) == ("failed", "image_refused")
    assert job.end_detail == (
        "The scanner has findings in the image.\nscanned hello of …\nCVE-2026-1 critical"
    )
    assert Hold.objects.get(job=job).status == "released"


@pytest.mark.usefixtures("in_turn")
class TestRefuse:
    def test_findings_end_the_job_and_are_not_asked_for_again(self, place: Place, scanner: Scanner, started):
        policy(place, "refuse")
        scanner.ends(1)
        image = place.pull()
        refused(begin(place.run()))
        refused(begin(place.run()))
        assert scanner.asked == [image.id]
        assert started == []
        (row,) = ImageScan.objects.all()
        assert (row.engine, row.image_id, row.verdict) == (place.engine, image.id, "findings")

    def test_a_clean_image_runs_also_one_that_is_pulled_first(self, place: Place, scanner: Scanner, started):
        policy(place, "refuse")
        scanner.ends(0)
        run = place.run()
        begin(run)
        begin(place.run())
        assert len(started) == 2
        assert scanner.asked == [Job.objects.get(pk=run.job.pk).image_id]
        assert not run.job.events.filter(kind="image_scan").exists()

    def test_nothing_runs_unscanned(self, place: Place, scanner: Scanner, started):
        """The scan failed: ours, tried again, and then it is asked again."""
        policy(place, "refuse")
        scanner.ends(2)
        place.pull()
        run = place.run()
        ended = begin(run)
        assert (ended.status, ended.end_reason) == ("failed", "cannot_start")
        assert ended.end_detail.startswith("The image was not scanned.\nscanned hello")
        job = Job.objects.get(pk=run.job.pk)
        assert (job.status, Hold.objects.get(job=job).status) == ("queued", "open")
        assert started == []
        scanner.ends(0)
        run = place.run_of(job)
        begin(run)
        assert started == [run.attempt.pk]
        assert len(scanner.asked) == 2

    def test_one_that_takes_too_long_has_failed(self, place: Place, scanner: Scanner, settings):
        policy(place, "refuse")
        settings.IMAGE_SCAN_SECONDS = 0.5
        scanner.hold()
        place.pull()
        ended = begin(place.run())
        assert ended.end_reason == "cannot_start"
        assert ended.end_detail.endswith("The scanner took longer than 0.5 s.")

    def test_a_scanner_that_was_taken_away_lets_nothing_through(self, place: Place, settings):
        policy(place, "refuse")
        settings.IMAGE_SCAN_COMMAND = []
        place.pull()
        ended = begin(place.run())
        assert ended.end_reason == "cannot_start"
        assert "IMAGE_SCAN_COMMAND" in ended.end_detail


@pytest.mark.usefixtures("in_turn")
class TestReport:
    @pytest.mark.parametrize(
        ("status", "verdict", "says"),
        [
            (1, "findings", "The scanner has findings in the image.\n"),
            (3, "failed", "The image was not scanned.\n"),
        ],
    )
    def test_the_job_runs_and_is_told(self, place: Place, scanner: Scanner, started, status, verdict, says):
        policy(place, "report")
        scanner.ends(status)
        place.pull()
        run = place.run()
        begin(run)
        assert started == [run.attempt.pk]
        event = run.job.events.get(kind="image_scan")
        assert event.message == f"{says}scanned hello of …\nCVE-2026-1 critical"
        assert (event.attempt_id, event.data) == (run.attempt.pk, {"verdict": verdict})

    def test_it_is_told_once_however_often_its_step_begins(self, place: Place, scanner: Scanner, started):
        """An engine that is silent at the create has the step begin again every other second, without an end."""
        policy(place, "report")
        scanner.ends(1)
        place.pull()
        run = place.run()
        for _ in range(3):
            begin(again(run))
        assert run.job.events.filter(kind="image_scan").count() == 1
        begin(place.run_of(submit(place.user, image=place.name())))
        assert JobEvent.objects.filter(kind="image_scan").count() == 2


@pytest.mark.usefixtures("in_turn")
class TestWhatIsScanned:
    def test_nothing_without_a_policy(self, place: Place, scanner: Scanner, started):
        place.pull()
        begin(place.run())
        assert (len(started), scanner.asked) == (1, [])

    def test_an_operator_s_image_too_and_it_stays_theirs(self, place: Place, scanner: Scanner):
        policy(place, "refuse")
        scanner.ends(1)
        place.link.client.pull(place.name(), 1e12)
        refused(begin(place.run()))
        assert not Image.objects.exists()

    def test_the_sandbox_image_only_for_a_job_that_names_it(
        self, place: Place, scanner: Scanner, settings, started
    ):
        policy(place, "refuse")
        scanner.ends(1)
        place.pull()
        settings.SANDBOX_IMAGE = place.name()
        run = place.run_of(submit(place.user))
        begin(run)
        assert (started, scanner.asked) == ([run.attempt.pk], [])
        refused(begin(place.run()))

    def test_again_when_the_verdict_is_too_old(self, place: Place, scanner: Scanner, started, settings):
        policy(place, "refuse")
        scanner.ends(0)
        place.pull()
        begin(place.run())
        age = settings.IMAGE_SCAN_KEPT_SECONDS
        ImageScan.objects.update(scanned_at=database_now() - timedelta(seconds=age))
        scanner.ends(1)
        refused(begin(place.run()))
        assert len(scanner.asked) == 2
        assert ImageScan.objects.get().verdict == "findings"


class TestBesideTheSteps:
    def test_one_scan_for_all_who_wait(self, committed: Place, scanner: Scanner, started):
        policy(committed, "refuse")
        scanner.ends(0)
        scanner.hold()
        committed.pull()
        runs = [committed.run(), committed.run()]
        for run in runs:
            runner.advance(run)  # comes back at once
        eventually(lambda: scanner.asked, 20)
        assert {Job.objects.get(pk=run.job.pk).phase for run in runs} == {"scanning"}
        assert started == []
        scanner.let_go()
        eventually(lambda: len(started) == 2, 20)
        assert len(scanner.asked) == 1

    def test_a_cancel_ends_the_job_while_its_image_is_scanned(
        self, committed: Place, scanner: Scanner, started
    ):
        policy(committed, "refuse")
        scanner.ends(0)
        scanner.hold()
        committed.pull()
        run = committed.run()
        runner.advance(run)
        eventually(lambda: scanner.asked, 20)
        cancel(run.job, by="ada")
        eventually(lambda: Job.objects.get(pk=run.job.pk).status == "cancelled", 20)
        assert Hold.objects.get(job=run.job).status == "released"
        assert not ImageScan.objects.exists()
        scanner.let_go()
        eventually(lambda: ImageScan.objects.filter(verdict="clean").exists(), 20)  # for the next job
        assert started == []
        assert not again(run).job.events.filter(kind="image_scan").exists()
