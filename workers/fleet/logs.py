"""What a worker tells of its replica's log: the end of it while it runs, with the result the beginning of each stream.

It is one worker's word: no proof covers it, nothing is compared by it.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from jobs.logs import append_log
from jobs.models import Attempt
from workers.fleet.manifest import LOG_BYTES
from workers.fleet.models import Replica, Unit

TAIL_BYTES = 8192


def read_streams(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The streams of a result's `log`, as the replica's `progress` keeps them until its unit ends; writes nothing.

    Each has `data` (base64) and `cut`, bytes that were left out at its end. Raises ValidationError.
    """
    for stream, told in given.items():
        if len(_bytes(stream, told["data"])) > LOG_BYTES:
            text = f"At most {LOG_BYTES} bytes of a stream; count the others as cut."
            raise ValidationError({"log": f"{stream}: {text}"})
    shown = _bytes("stdout", given["stdout"]["data"])[-TAIL_BYTES:] if "stdout" in given else b""
    text = shown.decode(errors="replace").replace("\0", "")
    return {"note": "", "log": text, "streams": {name: dict(told) for name, told in given.items()}}


def cut_bytes(replica: Replica) -> dict[str, int]:
    """What was left out of each stream, as the launcher's marker names it."""
    return {f"{name}_cut": told["cut"] for name, told in replica.progress.get("streams", {}).items()}


def hand_over(unit: Unit, attempt: Attempt, accepted: Replica | None) -> None:
    """The unit has ended: the streams of the accepted replica become the job's log, of the others only the end is kept.

    Within the transaction that ends the unit.
    """
    if accepted is not None:
        for stream, told in accepted.progress.get("streams", {}).items():
            append_log(attempt, stream, 0, _bytes(stream, told["data"]))
    for replica in unit.replicas.filter(progress__has_key="streams"):
        kept = {name: told for name, told in replica.progress.items() if name != "streams"}
        Replica.objects.filter(pk=replica.pk).update(progress=kept)


def _bytes(stream: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ValidationError({"log": f"{stream} is not in base64."}) from error
