"""The scan of images along the whole path: a worker process, and edits of its engine while it runs."""

from pathlib import Path

from compute_site.core.models import save_clean
from environments.models import Engine
from jobs.billing.models import Hold
from tests.faults.site import FaultSite


def test_findings_are_told_and_then_refused_and_a_cancel_does_not_wait(
    site: FaultSite, tmp_path: Path, settings
) -> None:
    held = tmp_path / "held"
    script = f"while test -e {held}; do sleep 0.02; done; echo CVE-1 in $1; exit 1"
    settings.IMAGE_SCAN_COMMAND = ["sh", "-c", script, "scanner", "{image}"]
    place = site.place()
    site.worker(place, IMAGE_SCAN_COMMAND=settings.IMAGE_SCAN_COMMAND)
    engine = Engine.objects.get(pk=place.engine.pk)
    engine.scan_policy = "report"
    save_clean(engine)

    held.touch()
    cancelled = site.shell(place, "true")
    site.until(lambda: site.detail(cancelled)["phase"] == "scanning")
    site.cancel(cancelled)
    site.wait_clean(cancelled)
    assert site.detail(cancelled)["end_reason"] == "cancelled"
    held.unlink()

    told = site.shell(place, "true")
    site.wait_clean(told)
    assert site.detail(told)["end_reason"] == "succeeded"
    (event,) = told.events.filter(kind="image_scan")
    assert event.message.startswith("The scanner has findings in the image.\nCVE-1 in sha256:")

    engine.scan_policy = "refuse"
    save_clean(engine)
    refused = site.shell(place, "true")
    site.wait_clean(refused)
    found = site.detail(refused)
    assert (found["status"], found["end_reason"]) == ("failed", "image_refused")
    assert "CVE-1 in sha256:" in found["end_detail"]
    assert Hold.objects.get(job=refused).status == "released"
    assert not refused.attempts.exclude(started_at=None).exists()
