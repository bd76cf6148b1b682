"""Step 4: the image, resolved once to an id, used by that id from then on. Pulls run beside the steps, not in them."""

import logging
import threading
import time
from collections.abc import Callable

from django.conf import settings
from django.db import close_old_connections

from compute_site.core.errors import ExecutionFailed
from jobs.models import Job
from workers.sandbox.docker import ImageFacts
from workers.steps import Run

log = logging.getLogger(__name__)

_pulls = threading.BoundedSemaphore(4)  # downloads at once in this process
_one_each: dict[str, threading.Lock] = {}
_one_each_lock = threading.Lock()


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
    """Fetch the image from an allowed registry, one pull per image at a time. Raises the reason as an error."""
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
    deadline = time.monotonic() + settings.IMAGE_PULL_SECONDS
    with _pulls, _lock_for(wanted):
        return fix(run, run.connection.client.image(wanted) or run.connection.client.pull(wanted, deadline))


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


def _lock_for(wanted: str) -> threading.Lock:
    with _one_each_lock:
        return _one_each.setdefault(wanted, threading.Lock())
