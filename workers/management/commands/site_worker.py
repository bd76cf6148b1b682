"""`manage.py site_worker`: the Celery worker of the queue `site`, for what must go on when every engine's worker is dead."""

import socket
from argparse import ArgumentParser
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Run the site's own worker: lost workers, lost knocks, expiry, reclaim, retention."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--threads", type=int, default=2, help="Actions at once (default 2).")
        parser.add_argument("--loglevel", default="INFO")

    def handle(self, *args: Any, **options: Any) -> None:
        worker = current_app.Worker(
            hostname=f"site@{socket.gethostname()}",
            queues=[settings.CELERY_TASK_DEFAULT_QUEUE],
            pool="threads",
            concurrency=options["threads"],
            loglevel=options["loglevel"],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        worker.start()
        raise SystemExit(worker.exitcode or 0)
