"""What the site pulled goes when nobody uses it any more; on the real engine, with images of the test's own."""

import uuid
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F

from compute_site.core.db import ClockTimestamp, database_now
from compute_site.core.errors import ExecutionFailed
from environments.models import Engine
from jobs.cancellation import cancel
from jobs.models import Attempt, Job
from jobs.outcome import Outcome
from jobs.settlement import settle
from tests.workers.images_on_engine import *  # noqa: F403 - fixtures are found by their names here
from tests.workers.images_on_engine import Place, again, force_remove
from tests.workers.test_races import beside, wait_for_a_waiter
from workers import image_retention, images, tasks
from workers.image_retention import remove_unused
from workers.models import Image, ImageScan
from workers.own_images import keep
from workers.sandbox.docker import EngineClient, EngineUnreachable
from workers.steps import Cancelled

pytestmark = pytest.mark.engine


def in_days(days: float) -> datetime:
    return database_now() + timedelta(days=days)


class TestRows:
    def test_a_pull_leaves_a_row_under_each_name(self, place: Place):
        image = place.pull()
        (row,) = place.rows()
        assert (row.image_id, row.references, row.origin) == (image.id, [place.name()], "pulled")
        assert row.size == image.size > 0
        assert place.pull() == image  # it is there
        place.pull("2")
        (row,) = place.rows()
        assert row.references == [place.name(), place.name("2")]

    def test_an_image_of_the_operator_s_gets_none_under_any_name(self, place: Place):
        image = place.link.client.pull(place.name(), 1e12)
        assert place.pull() == image
        assert place.pull("2").id == image.id
        assert place.rows() == []
        assert remove_unused(place.engine, in_days(1000)) == []
        assert place.there(place.name())

    def test_a_sandbox_image_that_the_site_made_has_one(self, place: Place, settings: Any):
        Engine.objects.filter(pk=place.engine.pk).update(docker_id=place.link.facts.engine_id)
        base = settings.SANDBOX_IMAGE
        made = f"compute-site/test-{uuid.uuid4().hex[:12]}:1"
        settings.SANDBOX_BASE, settings.SANDBOX_IMAGE, settings.CACHE_DIR = base, made, None
        try:
            call_command("provide_sandbox_image", stdout=StringIO())
            (row,) = place.rows()
            assert (row.references, row.origin) == ([made], "built")
            assert remove_unused(place.engine, in_days(8)) == []
            settings.SANDBOX_IMAGE = base
            assert remove_unused(place.engine, in_days(10)) == [str(row)]
        finally:
            force_remove(place, made)

    def test_choosing_it_is_using_it(self, place: Place):
        place.pull()
        Image.objects.update(last_used_at=F("last_used_at") - timedelta(days=3))
        run = place.run()
        image = images.local_image(run)
        assert image is not None
        (row,) = place.rows()
        assert database_now() - row.last_used_at < timedelta(minutes=1)
        assert Job.objects.get(pk=run.job.pk).image_id == row.image_id


class TestRetention:
    def test_it_goes_when_the_days_are_over_and_not_before(self, place: Place):
        place.pull()
        assert remove_unused(place.engine, in_days(6.9)) == []
        assert place.there(place.name())
        assert remove_unused(place.engine, in_days(7.95)) == [place.name()]
        assert not place.there(place.name())
        assert place.rows() == []

    def test_at_most_once_in_the_interval(self, place: Place):
        first = in_days(8)
        assert remove_unused(place.engine, first) == []
        image = place.pull()
        assert remove_unused(place.engine, first + timedelta(seconds=86_399)) == []
        assert place.there(image.id)
        assert Engine.objects.get(pk=place.engine.pk).images_cleaned_at == first
        assert remove_unused(place.engine, first + timedelta(seconds=86_400)) == [place.name()]

    def test_days_beyond_the_calendar_keep_all(self, place: Place, settings: Any):
        place.pull()
        Engine.objects.filter(pk=place.engine.pk).update(image_retention_days=2**31 - 1)
        settings.IMAGE_SCAN_KEPT_SECONDS = 2**40
        assert remove_unused(place.engine, in_days(1000)) == []
        assert len(place.rows()) == 1

    def test_the_worker_s_sweep_does_it(self, place: Place, monkeypatch: pytest.MonkeyPatch):
        place.pull()
        Image.objects.update(last_used_at=F("last_used_at") - timedelta(days=8))
        monkeypatch.setattr("workers.sweep.sweep", lambda engine: [])
        tasks.sweep_engine(place.engine.pk)
        assert not place.there(place.name())

    def test_an_old_verdict_on_what_is_gone_goes(self, place: Place):
        image = place.pull()
        for image_id in (image.id, "sha256:gone"):
            ImageScan.objects.create(engine=place.engine, image_id=image_id, reference="x", verdict="clean")
        remove_unused(place.engine, in_days(0.9))
        assert ImageScan.objects.count() == 2
        remove_unused(place.engine, in_days(2))
        assert ImageScan.objects.get().image_id == image.id

    def test_all_names_that_the_site_gave_it_go(self, place: Place):
        image = place.pull()
        place.pull("2")
        assert remove_unused(place.engine, in_days(8)) == [place.name()]
        assert not place.there(image.id)

    def test_under_a_name_of_somebody_else_s_it_stays_and_is_theirs(self, place: Place):
        image = place.pull()
        theirs = f"{place.registry}/theirs:1"
        place.tag(image.id, theirs)
        try:
            remove_unused(place.engine, in_days(8))
            assert place.there(theirs)
            assert not place.there(place.name())
            assert place.rows() == []
        finally:
            force_remove(place, theirs)

    def test_under_a_digest_of_somebody_else_s_too(self, place: Place):
        image = place.pull()
        (ours,) = image.digests
        theirs = f"{place.registry}/other@{ours.partition('@')[2]}"
        place.link.client.pull(theirs, 1e12)
        try:
            remove_unused(place.engine, in_days(8))
            left = place.link.client.image(image.id)
            assert left is not None
            assert (left.tags, left.digests) == ((), (theirs,))
            assert place.rows() == []
        finally:
            force_remove(place, image.id)

    def test_a_name_that_was_given_to_another_image_is_not_ours(self, place: Place, settings: Any):
        image = place.pull()
        place.tag(settings.SANDBOX_IMAGE, place.name())
        assert remove_unused(place.engine, in_days(8)) == [place.name()]
        assert not place.there(image.id)
        assert place.there(place.name())

    def test_a_container_of_whomever_keeps_it_with_all_its_names(self, place: Place):
        image = place.pull()
        place.pull("2")
        container = place.link.client.create(
            f"stranger-{place.engine.pk}-{image.id[7:19]}", {"Image": image.id}
        )
        try:
            assert remove_unused(place.engine, in_days(8)) == []
            assert place.there(place.name())
            assert place.there(place.name("2"))
            (row,) = place.rows()
            assert row.removing_until is None
        finally:
            place.link.client.remove(container)
        assert remove_unused(place.engine, in_days(10)) == [place.name()]

    def test_a_job_that_is_not_final_keeps_it(self, place: Place):
        """Also one that waits for its next attempt: it runs by the id that it has."""
        place.pull()
        run = place.run()
        images.local_image(run)
        assert remove_unused(place.engine, in_days(8)) == []
        Attempt.objects.update(cleaned_at=ClockTimestamp())
        assert remove_unused(place.engine, in_days(10)) == []
        assert settle(run.attempt, run.lease, Outcome("image_refused"))
        Attempt.objects.update(cleaned_at=None)
        assert remove_unused(place.engine, in_days(12)) == []  # its container may still be there
        Attempt.objects.update(cleaned_at=ClockTimestamp())
        assert remove_unused(place.engine, in_days(14)) == [place.name()]

    def test_the_sandbox_image_stays(self, place: Place, settings: Any):
        place.pull()
        settings.SANDBOX_IMAGE = place.name()
        assert remove_unused(place.engine, in_days(8)) == []
        assert place.there(place.name())

    def test_the_row_of_what_somebody_else_removed_goes(self, place: Place):
        place.pull()
        force_remove(place, place.name())
        assert remove_unused(place.engine) == []
        assert place.rows() == []

    def test_an_engine_that_falls_silent_loses_nothing(self, place: Place, monkeypatch: pytest.MonkeyPatch):
        place.pull()

        def silent(client: EngineClient, reference: str) -> bool:
            raise EngineUnreachable("no answer")

        with monkeypatch.context() as broken:
            broken.setattr(EngineClient, "remove_image", silent)
            with pytest.raises(EngineUnreachable):
                remove_unused(place.engine, in_days(8))
        assert Engine.objects.get(pk=place.engine.pk).images_cleaned_at is None
        # What was asked may still happen, so nobody chooses it yet; whoever comes later tries again.
        (row,) = place.rows()
        assert keep(place.engine, row.image_id) is False
        Image.objects.update(removing_until=row.first_seen_at)
        assert remove_unused(place.engine, in_days(8)) == [place.name()]


class TestAtTheSameMoment:
    def test_who_chooses_first_keeps_it(self, committed: Place):
        committed.pull()
        (row,) = committed.rows()
        claims: list[Any] = []
        with transaction.atomic():
            assert keep(committed.engine, row.image_id) is True
            thread, faults = beside(lambda: claims.append(image_retention._claim(row)))
            wait_for_a_waiter()
        thread.join()
        assert (claims, faults) == ([None], [])

    def test_who_comes_second_does_not_choose_it(self, committed: Place):
        committed.pull()
        (row,) = committed.rows()
        kept: list[Any] = []
        with transaction.atomic():
            assert image_retention._claim(row) is not None
            thread, faults = beside(lambda: kept.append(keep(committed.engine, row.image_id)))
            wait_for_a_waiter()
        thread.join()
        assert (kept, faults) == ([False], [])

    def test_a_job_that_meets_the_removal_pulls_the_image_again(
        self, committed: Place, monkeypatch: pytest.MonkeyPatch
    ):
        """It comes between the claim and the engine's removal, and has its image at the end, with its row."""
        image = committed.pull()
        run, pulled = committed.run(), []
        monkeypatch.setattr("workers.beside.LOOK", 0.05)
        take_name = EngineClient.remove_image
        threads: list[Any] = []

        def meanwhile(client: EngineClient, reference: str) -> bool:
            if not threads:
                assert images.local_image(run) is None
                threads.append(beside(lambda: pulled.append(images.pull(run))))
            return take_name(client, reference)

        monkeypatch.setattr(EngineClient, "remove_image", meanwhile)
        assert remove_unused(committed.engine, in_days(8)) == [committed.name()]
        thread, faults = threads[0]
        thread.join()
        assert (pulled, faults) == ([image], [])
        assert committed.there(committed.name())
        assert images.local_image(again(run)) == image
        connection.close()


@pytest.mark.usefixtures("in_turn")
class TestPullAgain:
    def test_a_job_gets_the_image_that_it_had(self, place: Place):
        """Somebody removed it between two attempts."""
        image = place.pull()
        run = place.run()
        images.local_image(run)
        force_remove(place, place.name())
        assert images.local_image(again(run)) is None
        assert images.pull(again(run)) == image
        (row,) = place.rows()
        assert row.image_id == image.id

    def test_it_waits_for_the_end_of_a_removal(self, place: Place, monkeypatch: pytest.MonkeyPatch):
        image = place.pull()
        Image.objects.update(removing_until=in_days(1))
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            Image.objects.update(removing_until=None)

        monkeypatch.setattr("workers.images.time.sleep", wait)
        assert images.pull(place.run()) == image
        assert len(waits) == 1

    def test_a_cancel_ends_that_wait(self, place: Place, monkeypatch: pytest.MonkeyPatch):
        place.pull()
        Image.objects.update(removing_until=in_days(1))
        run = place.run()
        monkeypatch.setattr("workers.images.time.sleep", lambda seconds: cancel(run.job, by="ada"))
        with pytest.raises(Cancelled):
            images.pull(run)

    def test_another_image_of_the_same_name_is_none(self, place: Place):
        run = place.run()
        Job.objects.filter(pk=run.job.pk).update(image_id="sha256:" + "0" * 64)
        with pytest.raises(ExecutionFailed, match=r"image_not_found: sha256:0+ is no longer on the engine"):
            images.pull(again(run))
