"""`manage.py engine_worker NAME`: the Celery worker pinned to one engine."""

from argparse import ArgumentParser
from typing import Any

from celery import current_app
from django.core.management.base import BaseCommand, CommandError

from compute_site.core.errors import SiteError
from environments.models import Engine, EngineKind
from workers.bootstep import engine_step
from workers.celery_worker import run_worker
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
        raise SystemExit(
            run_worker(
                f"engine.{engine.name}",
                [engine.queue],
                threads=options["threads"],
                loglevel=options["loglevel"],
            )
        )

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
