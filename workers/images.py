"""Step 4: the image, resolved once to an id, used by that id from then on. Pulls run beside the steps, not in them."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import timedelta

from django.conf import settings
from django.db import close_old_connections

from compute_site.core.db import ClockTimestamp
from compute_site.core.errors import ExecutionFailed
from jobs.models import Attempt, Job
from workers.sandbox.docker import EngineClient, ImageFacts
from workers.steps import Cancelled, Run

log = logging.getLogger(__name__)

_downloads = threading.BoundedSemaphore(4)  # at once in this process
_pulling: dict[str, Future[ImageFacts]] = {}
_pulling_lock = threading.Lock()
LOOK = 1.0  # seconds between two looks at the cancel flag during a pull


def local_image(run: Run) -> ImageFacts | None:
    """The job's image if the engine has it; None when it must be pulled. Raises ExecutionFailed (image_refused)."""
    image = run.connection.client.image(run.job.image_id or reference(run))
    return fix(run, image) if image is not None else None


def reference(run: Run) -> str:
    """The image as asked; without one, the site's own sandbox image."""
    return run.spec.image or settings.SANDBOX_IMAGE


def fix(run: Run, image: ImageFacts) -> ImageFacts:
    """Check that the image can run here, and record its id as the job's, once and for all attempts."""
    engine = run.connection.facts
    if image.os != "linux" or (image.architecture and image.architecture != engine.architecture):
        raise ExecutionFailed(
            "image_refused", f"it is for {image.os}/{image.architecture}, not linux/{engine.architecture}"
        )
    if not run.job.image_id:
        Job.objects.filter(pk=run.job.pk, image_id="").update(image_id=image.id)
        run.job.image_id = image.id
    return image


def pull_beside(run: Run, then: Callable[[Run], None]) -> None:
    """Pull the image in a thread of its own, then go on with `then` there: no other step waits for a download."""
    name = f"pull-{run.attempt.short_id}"
    threading.Thread(target=_pull, args=(run, then), name=name, daemon=True).start()


def pull(run: Run) -> ImageFacts:
    """Fetch the image from an allowed registry, one pull per image at a time. Raises the reason, or Cancelled."""
    wanted = reference(run)
    if run.job.image_id:
        raise ExecutionFailed("image_not_found", f"{run.job.image_id} is no longer on the engine")
    registry = registry_of(wanted)
    if registry not in settings.ALLOWED_REGISTRIES:
        allowed = ", ".join(settings.ALLOWED_REGISTRIES) or "none"
        raise ExecutionFailed(
            "image_not_found",
            f"{wanted} is not on the engine, and pulls from {registry} are not allowed (allowed: {allowed})",
        )
    seconds = settings.IMAGE_PULL_SECONDS
    Attempt.objects.filter(pk=run.attempt.pk, lease=run.lease).update(
        step_deadline=ClockTimestamp()
        + timedelta(seconds=2 * seconds)  # it may wait for other downloads first
    )
    download = _download(run.connection.client, wanted, seconds)
    while True:
        try:
            return fix(run, download.result(timeout=LOOK))
        except FutureTimeout:
            if Job.objects.filter(pk=run.job.pk, cancel_requested_at__isnull=False).exists():
                raise Cancelled from None  # the download goes on; the next job finds the image


def registry_of(wanted: str) -> str:
    """The registry's host in an image reference; Docker's own when none is named."""
    first, slash, _ = wanted.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _pull(run: Run, then: Callable[[Run], None]) -> None:
    try:
        then(run)
    except Exception:
        log.exception("attempt %s: a step after its pull failed", run.attempt.short_id)
    finally:
        close_old_connections()


def _download(client: EngineClient, wanted: str, seconds: float) -> Future[ImageFacts]:
    """The one download of an image that is under way, or a new one in a thread that nobody waits for at exit."""
    key = f"{client.endpoint} {wanted}"
    with _pulling_lock:
        if key not in _pulling:
            _pulling[key] = Future()
            threading.Thread(target=_fetch, args=(client, wanted, seconds, key), daemon=True).start()
        return _pulling[key]


def _fetch(client: EngineClient, wanted: str, seconds: float, key: str) -> None:
    future = _pulling[key]
    try:
        with _downloads:
            future.set_result(client.image(wanted) or client.pull(wanted, time.monotonic() + seconds))
    except Exception as error:  # noqa: BLE001 - it is raised again where the result is awaited
        future.set_exception(error)
    finally:
        with _pulling_lock:
            del _pulling[key]
