"""`manage.py check_pods [--ahead SECONDS]`: the three periodic passes, once, now."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand

from compute_site.core.db import database_now
from providers import ending, observing, sweeping
from providers.models import FINAL, Pod


class Command(BaseCommand):
    help = "Observe pods, end those that are due, sweep orphans: once, now, without Celery."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--ahead",
            type=int,
            default=0,
            help="Judge as if it were so many seconds later: pods end earlier, never later.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        now = database_now() + timedelta(seconds=max(0, options["ahead"]))
        ending.check_pod_terminations(now=now)
        observing.observe_pods(now=now)
        sweeping.sweep_orphans(now=now)
        for pod in Pod.objects.exclude(status__in=FINAL).select_related("account"):
            self.stdout.write(f"{pod.account}: {pod.name} {pod.status} {pod.end_reason}".rstrip())
