"""The rows of images that the site brought onto its engines: what has no row is somebody else's."""

from django.db import transaction

from compute_site.core.db import ClockTimestamp, first_row, lock_one
from environments.models import Engine
from workers.models import Image
from workers.sandbox.docker import ImageFacts

# Statements of their own, one after the other: whoever waits for the row reads afterwards what the other one wrote.
KEEP_SQL = """
    UPDATE workers_image SET last_used_at = clock_timestamp()
     WHERE engine_id = %s AND image_id = %s AND (removing_until IS NULL OR removing_until < clock_timestamp())
    RETURNING id
"""
KNOWN_SQL = "SELECT id FROM workers_image WHERE engine_id = %s AND image_id = %s"


def remember(engine: Engine, image: ImageFacts, reference: str, origin: str, *, before: set[str]) -> None:
    """Keep that the site brought `image` under the name `reference`; `before` are the ids that the engine had until then.

    Nothing is written of an image that was there and has no row: it stays its owner's under all its names.
    """
    with transaction.atomic():
        rows = Image.objects.filter(engine=engine, image_id=image.id)
        if image.id in before and not rows.exists():
            return
        given = {"references": [reference], "origin": origin, "size": image.size}
        _, made = Image.objects.get_or_create(engine=engine, image_id=image.id, defaults=given)
        if made:
            return
        row = lock_one(rows)
        if reference not in row.references:
            row.references.append(reference)
        rows.update(references=row.references, last_used_at=ClockTimestamp(), removing_until=None)


def keep(engine: Engine, image_id: str) -> bool | None:
    """An attempt chooses the image: from now on it is not removed before the retention is over.

    True: it is ours and stays. False: it is just being removed, choose again. None: it has no row.
    """
    key = [engine.pk, image_id]
    if first_row(KEEP_SQL, key) is not None:
        return True
    return None if first_row(KNOWN_SQL, key) is None else False
