"""Whether the engine's policy lets an image run: what the operator's scanner says of it, asked once for all jobs.

Only an image that a job names is scanned. The sandbox image is the operator's own choice.
"""

from django.conf import settings

from compute_site.core.db import ClockTimestamp, first_row
from compute_site.core.errors import ExecutionFailed, InfrastructureFailed
from environments.models import ScanPolicy
from jobs.models import JobEvent
from jobs.transitions import record_event
from workers import beside
from workers.engines import Connection, tls_of
from workers.images import reference
from workers.models import ImageScan, Verdict
from workers.sandbox.docker import ImageFacts
from workers.scanner import scan
from workers.steps import Run

_scans = beside.Once[ImageScan](at_once=2)

VERDICTS = {0: Verdict.CLEAN, 1: Verdict.FINDINGS}  # by exit status; all else is a failure
REPORTED = {
    Verdict.FINDINGS: "The scanner has findings in the image.",
    Verdict.FAILED: "The image was not scanned.",
}

# One statement with every start: the policy may have been edited a moment ago.
STANDING_SQL = """
    SELECT e.scan_policy, s.verdict, s.said FROM environments_engine e
      LEFT JOIN workers_imagescan s ON s.engine_id = e.id AND s.image_id = %s AND s.verdict <> 'failed'
           AND s.scanned_at > clock_timestamp() - make_interval(secs => %s)
     WHERE e.id = %s
"""


def may_run(run: Run, image: ImageFacts) -> bool:
    """Whether the image may run now; False when it has to be scanned first. A job is told of findings by an event.

    Raises ExecutionFailed (image_refused) where the policy refuses what the scanner found, InfrastructureFailed
    (cannot_start) where it refuses what could not be scanned.
    """
    if run.spec.image is None:
        return True
    engine = run.connection.engine
    row = first_row(STANDING_SQL, [image.id, settings.IMAGE_SCAN_KEPT_SECONDS, engine.pk])
    policy, verdict, said = row or (ScanPolicy.OFF, None, None)
    if policy == ScanPolicy.OFF:
        return True
    if run.scanned is not None and run.scanned.image_id == image.id:
        verdict, said = run.scanned.verdict, run.scanned.said
    if verdict is None:
        return False
    if verdict != Verdict.CLEAN:
        _told(run, policy, verdict, said)
    return True


def _told(run: Run, policy: str, verdict: str, said: str) -> None:
    """Raises under a policy that refuses, else leaves an event: one, however often the attempt's step begins again."""
    text = f"{REPORTED[Verdict(verdict)]}\n{said}".strip()
    if policy == ScanPolicy.REPORT:
        if JobEvent.objects.filter(attempt=run.attempt.pk, kind="image_scan", message=text).exists():
            return
        record_event(run.job.pk, "image_scan", text, attempt_id=run.attempt.pk, verdict=verdict)
    elif verdict == Verdict.FINDINGS:
        raise ExecutionFailed("image_refused", text)
    else:
        raise InfrastructureFailed("cannot_start", text)


def scan_image(run: Run) -> None:
    """Have the job's image scanned, beside the steps, one scan per image at a time; `run.scanned` is the answer.

    Raises Cancelled; the scan goes on, and the next job finds its verdict.
    """
    link, image_id, name = run.connection, run.job.image_id, reference(run)
    beside.allow_seconds(run, 2 * settings.IMAGE_SCAN_SECONDS)  # it may wait for other scans first
    key = f"{link.client.endpoint} {image_id}"
    run.scanned = beside.wait_for(run, _scans.start(key, lambda: _scan(link, image_id, name)))


def _scan(link: Connection, image_id: str, name: str) -> ImageScan:
    """Scan and keep the verdict. A scan that failed is kept to be seen, and is not believed by the next attempt."""
    if not settings.IMAGE_SCAN_COMMAND:  # it was there when the policy was set
        status, said = None, "There is no scanner (IMAGE_SCAN_COMMAND)."
    else:
        found = scan(
            settings.IMAGE_SCAN_COMMAND,
            image_id,
            endpoint=link.engine.endpoint,
            tls=tls_of(link.engine),
            seconds=settings.IMAGE_SCAN_SECONDS,
        )
        status, said = found.status, found.said
    verdict = VERDICTS.get(status, Verdict.FAILED) if status is not None else Verdict.FAILED
    values = {"verdict": verdict, "said": said, "reference": name[:255], "scanned_at": ClockTimestamp()}
    row, _ = ImageScan.objects.update_or_create(engine=link.engine, image_id=image_id, defaults=values)
    return row
