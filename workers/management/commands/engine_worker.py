"""`manage.py engine_worker NAME`: the Celery worker pinned to one engine."""

import socket
from argparse import ArgumentParser
from typing import Any

from celery import current_app
from django.core.management.base import BaseCommand, CommandError

from compute_site.core.errors import SiteError
from environments.models import Engine, EngineKind
from workers.bootstep import engine_step
from workers.engines import connect


class Command(BaseCommand):
    help = "Run the worker of one engine: takes jobs, runs and watches their containers. SIGTERM drains it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The engine's name, as in the admin.")
        parser.add_argument(
            "--threads",
            type=int,
            default=4,
            help="Steps at once (default 4); jobs at once are not limited by it.",
        )
        parser.add_argument("--loglevel", default="INFO")

    def handle(self, *args: Any, **options: Any) -> None:
        engine = self._engine(options["name"])
        current_app.steps["worker"].add(engine_step(engine))
        worker = current_app.Worker(
            hostname=f"engine.{engine.name}@{socket.gethostname()}",
            queues=[engine.queue],
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

    def _engine(self, name: str) -> Engine:
        engine = Engine.objects.select_related("host").filter(name=name).first()
        if engine is None:
            known = (
                ", ".join(Engine.objects.values_list("name", flat=True))
                or "none yet; see manage.py register_engine"
            )
            raise CommandError(f"There is no engine “{name}”. Engines: {known}.")
        if engine.kind != EngineKind.DOCKER or not engine.workspace_mode:
            raise CommandError(
                f"Engine “{name}” was never probed: run manage.py detect_host --engine {name} first."
            )
        try:
            connect(engine)
        except SiteError as error:
            raise CommandError(f"Engine “{name}” at {engine.endpoint}: {error}") from error
        return engine
