"""The stream of the site's container events."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import requests
import urllib3.exceptions

from workers.sandbox.facts import Event, event

EVENT_KINDS = ("start", "die", "oom")


class EventStream:
    """The site's `start`, `die` and `oom` events from the moment it is opened; iterate it in one thread.

    It ends normally when the engine dies or `close` is called from any thread: after every end, and before trusting
    silence, list the containers and inspect them, for the engine replays at most its last 256 events.
    """

    def __init__(self, stream: Any) -> None:
        """`stream` is the SDK's, already answered by the engine."""
        self._stream = stream
        self._closed = False

    def __iter__(self) -> Iterator[Event]:
        try:
            for raw in self._stream:
                yield event(raw)
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ValueError, OSError):
            return  # a stream that breaks is one that ended: the caller lists in both cases

    def close(self) -> None:
        """End the iteration, also one that is blocked in another thread. Safe to call twice."""
        if not self._closed:
            self._closed = True
            with suppress(OSError, AttributeError):  # the engine closed it first
                self._stream.close()
