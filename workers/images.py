"""Step 4: the image, resolved once to an id, used by that id from then on. Pulls run beside the steps, not in them."""

import time

from django.conf import settings

from compute_site.core.errors import ExecutionFailed
from jobs.models import Job
from workers import beside
from workers.engines import Connection
from workers.models import ImageOrigin
from workers.own_images import keep, remember
from workers.sandbox.docker import ImageFacts
from workers.steps import Run

_downloads = beside.Once[ImageFacts](at_once=4)


def local_image(run: Run) -> ImageFacts | None:
    """The job's image if the engine has it; None when it must be pulled. Raises ExecutionFailed (image_refused).

    An image that the site brought is kept for the attempt from here on; one that is just being removed is as none.
    """
    client = run.connection.client
    image = client.image(run.job.image_id or reference(run))
    if image is None:
        return None
    kept = keep(run.connection.engine, image.id)
    if kept is None and run.spec.image is not None:
        image = client.image(image.id)  # it may have gone together with its row, a moment ago
    return fix(run, image) if image is not None and kept is not False else None


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


def pull(run: Run) -> ImageFacts:
    """Fetch the image from an allowed registry, one pull per image at a time. Raises the reason, or Cancelled.

    A job that has an image gets that one again, or none.
    """
    wanted, link = reference(run), run.connection
    registry = registry_of(wanted)
    if registry not in settings.ALLOWED_REGISTRIES:
        allowed = ", ".join(settings.ALLOWED_REGISTRIES) or "none"
        raise ExecutionFailed(
            "image_not_found",
            f"{wanted} is not on the engine, and pulls from {registry} are not allowed (allowed: {allowed})",
        )
    seconds = settings.IMAGE_PULL_SECONDS
    beside.allow_seconds(run, 2 * seconds)  # it may wait for other downloads first
    key = f"{link.client.endpoint} {wanted}"
    while True:
        image = beside.wait_for(run, _downloads.start(key, lambda: _fetch(link, wanted, seconds)))
        if run.job.image_id and image.id != run.job.image_id:
            text = f"{run.job.image_id} is no longer on the engine, and {wanted} is another image now"
            raise ExecutionFailed("image_not_found", text)
        if keep(link.engine, image.id) is not False:
            return fix(run, image)
        time.sleep(beside.LOOK)  # until it is removed, or stays after all
        beside.stop_if_cancelled(run)


def registry_of(wanted: str) -> str:
    """The registry's host in an image reference; Docker's own when none is named."""
    first, slash, _ = wanted.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _fetch(link: Connection, wanted: str, seconds: float) -> ImageFacts:
    """Pull it unless it is there by now. What comes by a pull is the site's, whatever became of the job meanwhile."""
    if there := link.client.image(wanted):
        return there
    before = link.client.image_ids()
    image = link.client.pull(wanted, time.monotonic() + seconds)
    remember(link.engine, image, wanted, ImageOrigin.PULLED, before=before)
    return image
