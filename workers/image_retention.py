"""Images that nobody uses any more: removed after the engine's retention, if the site itself brought them.

The row is claimed first (`removing_until`), then the engine is asked, then the row goes. An attempt that chooses the
image at the same moment either moves `last_used_at` before the claim, which then fails, or meets the claim, waits for its
end and pulls the image again.
"""

import logging
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from compute_site.core.db import ClockTimestamp, database_now
from environments.models import Engine
from jobs.models import Attempt, Job
from jobs.models.job import FINAL
from workers.engines import Connection, connect
from workers.models import Image, ImageScan
from workers.sandbox.docker import EngineUnreachable
from workers.sandbox.refusals import split_reference

log = logging.getLogger(__name__)

REMOVAL = timedelta(minutes=10)  # longer than the engine takes for one; the claim of whoever died lapses


def remove_unused(engine: Engine, now: datetime | None = None) -> list[str]:
    """Remove what was not used for the engine's retention, at most once in its interval; returns what, in words.

    After EngineUnreachable it is due again at once, and an image whose removal was under way is left alone for a while.
    """
    link, now = connect(engine), now or database_now()
    fresh = Engine.objects.get(pk=engine.pk)
    if not _claim_pass(fresh, now):
        return []
    try:
        _forget_gone(link, now)
        limit = _before(now, days=fresh.image_retention_days)
        removed = [str(row) for row in _unused(link, limit) if _removed(link, row)]
    except EngineUnreachable:
        rows = Engine.objects.filter(pk=fresh.pk, images_cleaned_at=now)
        rows.update(images_cleaned_at=fresh.images_cleaned_at)
        raise
    for name in removed:
        log.info(
            "engine %s: removed image %s, unused for %d d", engine.name, name, fresh.image_retention_days
        )
    return removed


def _before(now: datetime, **age: int) -> datetime:
    """So long before `now`, or when the calendar begins."""
    try:
        return now - timedelta(**age)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _claim_pass(engine: Engine, now: datetime) -> bool:
    """Whether it is due, and this caller is the one who does it."""
    last = engine.images_cleaned_at
    if last is not None and now < last + timedelta(seconds=engine.image_cleanup_interval):
        return False
    return Engine.objects.filter(pk=engine.pk, images_cleaned_at=last).update(images_cleaned_at=now) == 1


def _forget_gone(link: Connection, now: datetime) -> None:
    """Rows of images that somebody else removed go, and old verdicts on what is gone.

    The rows are read first: an image has come before its row.
    """
    rows = list(Image.objects.filter(engine=link.engine))
    old = _before(now, seconds=settings.IMAGE_SCAN_KEPT_SECONDS)
    verdicts = ImageScan.objects.filter(engine=link.engine, scanned_at__lt=old)
    if not rows and not verdicts.exists():
        return
    there = link.client.image_ids()
    verdicts.exclude(image_id__in=there).delete()
    for row in rows:
        if row.image_id not in there and link.client.image(row.image_id) is None:
            Image.objects.filter(pk=row.pk, last_used_at=row.last_used_at).delete()


def _unused(link: Connection, limit: datetime) -> list[Image]:
    """The engine's rows not used since `limit`, without the sandbox image, oldest use first."""
    rows = Image.objects.filter(engine=link.engine, last_used_at__lt=limit).order_by("last_used_at")
    sandbox = link.client.image(settings.SANDBOX_IMAGE)
    return list(rows.exclude(image_id=sandbox.id) if sandbox is not None else rows)


def _removed(link: Connection, row: Image) -> bool:
    """Claim the row, remove the image, and the row with it; False when somebody needs it after all."""
    until = _claim(row)
    if until is None:
        return False
    claimed = Image.objects.filter(pk=row.pk, removing_until=until)
    if _gone_from_engine(link, row):
        claimed.delete()
        return True
    claimed.update(removing_until=None)
    return False


def _claim(row: Image) -> datetime | None:
    """From here on nobody chooses the image. None: somebody has chosen it, or a job that is not final is to run with it."""
    jobs = Job.objects.filter(image_id=OuterRef("image_id"), environment__engine=OuterRef("engine"))
    attempts = Attempt.objects.filter(engine=OuterRef("engine"), cleaned_at__isnull=True)
    free = Image.objects.filter(
        ~Exists(jobs.exclude(status__in=sorted(FINAL))),
        ~Exists(attempts.filter(Q(image_id=OuterRef("image_id")) | Q(job__image_id=OuterRef("image_id")))),
        Q(removing_until=None) | Q(removing_until__lt=ClockTimestamp()),
    )
    until = database_now() + REMOVAL
    done = free.filter(pk=row.pk, last_used_at=row.last_used_at).update(removing_until=until)
    return until if done else None


def _gone_from_engine(link: Connection, row: Image) -> bool:
    """Take our names from the image, and it with them; True when nothing of ours is left.

    Under a name that is not ours it stays, as its owner's. A container of whomever keeps it whole.
    """
    client = link.client
    if client.image(row.image_id) is None:
        return True
    if client.uses_image(row.image_id):
        return False
    for reference in row.references:
        named = client.image(reference)
        if named is not None and named.id == row.image_id and not client.remove_image(reference):
            return False
    left = client.image(row.image_id)
    if left is None or left.tags:
        return True
    ours = {_repository(reference) for reference in row.references}
    if any(_repository(digest) not in ours for digest in left.digests):
        return True
    return client.remove_image(row.image_id)


def _repository(reference: str) -> str:
    """The name without tag or digest, as the engine writes it: without Docker's own registry."""
    name = split_reference(reference)[0].removeprefix("index.").removeprefix("docker.io/")
    return name.removeprefix("library/")
