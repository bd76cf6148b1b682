"""A sign of life for whoever watches a process from outside: a file that is touched while its work succeeds."""

from pathlib import Path

from django.conf import settings


def pulse() -> None:
    """Touch PULSE_FILE; nothing when none is set. Its time of change is all that it says."""
    if settings.PULSE_FILE:
        Path(settings.PULSE_FILE).touch()
