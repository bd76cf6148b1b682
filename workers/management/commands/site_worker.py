"""`manage.py site_worker`: the Celery worker of the queue `site`, for what must go on when every engine's worker is dead."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from workers.celery_worker import run_worker


class Command(BaseCommand):
    help = "Run the site's own worker: lost workers, lost knocks, expiry, reclaim, retention."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--threads", type=int, default=6, help="Actions at once (default 6).")
        parser.add_argument("--loglevel", default="INFO")

    def handle(self, *args: Any, **options: Any) -> None:
        raise SystemExit(
            run_worker(
                "site",
                [settings.CELERY_TASK_DEFAULT_QUEUE],
                threads=options["threads"],
                loglevel=options["loglevel"],
            )
        )
