"""How this site runs a Celery worker: one queue or few, threads, no gossip, no results."""

import socket
import warnings
from collections.abc import Sequence

from celery import current_app
from celery.exceptions import SecurityWarning


def run_worker(name: str, queues: Sequence[str], *, threads: int, loglevel: str) -> int:
    """Run a Celery worker in this process until it is told to stop; returns its exit status."""
    # Messages are JSON knocks with a number in them, and root is what mounts a disk for each job.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = current_app.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        queues=list(queues),
        pool="threads",
        concurrency=threads,
        loglevel=loglevel,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
