"""`manage.py engine_worker NAME`: the Celery worker pinned to one engine."""

from argparse import ArgumentParser
from typing import Any

from celery import current_app
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from compute_site.core.errors import SiteError
from environments.models import Engine, EngineKind, Slots, SlotSet
from environments.slots import device_names, read_slots
from workers import lifecycle
from workers.bootstep import engine_step
from workers.celery_worker import run_worker
from workers.engines import connect
from workers.granting import try_at_start
from workers.registration import look_again


class Command(BaseCommand):
    help = "Run a worker of one engine: takes jobs, runs and watches their containers. SIGTERM drains it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The engine's name, as in the admin.")
        parser.add_argument(
            "--threads",
            type=int,
            default=4,
            help="Steps at once (default 4); jobs at once are not limited by it.",
        )
        parser.add_argument(
            "--cores",
            metavar="0-3,8",
            help="Cores of the engine's host that this worker may reserve (default: all of the engine).",
        )
        parser.add_argument(
            "--devices",
            metavar="UUID,UUID",
            help="Devices that this worker may reserve (default: all of the engine; with --cores: none).",
        )
        parser.add_argument("--loglevel", default="INFO")

    def handle(self, *args: Any, **options: Any) -> None:
        engine = self._engine(options["name"])
        slots = self._slots(engine, options["cores"], options["devices"])
        current_app.steps["worker"].add(engine_step(engine, slots))
        own = Slots(engine=engine, cores=slots.cores, devices=slots.devices).queue
        raise SystemExit(
            run_worker(
                own,
                sorted({engine.queue, own}),
                threads=options["threads"],
                loglevel=options["loglevel"],
            )
        )

    def _slots(self, engine: Engine, cores: str | None, devices: str | None) -> SlotSet:
        """As asked, unless another worker has some of them: said here already, before anything is started."""
        try:
            slots = read_slots(engine, cores, devices)
            lifecycle.superseded(engine, slots)
        except ValidationError as error:
            words = [f"--{name}: {text}" for name, texts in error.message_dict.items() for text in texts]
            raise CommandError(" ".join(words)) from error
        except lifecycle.SlotsTaken as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"Slots of this worker: cores {slots.core_text}, devices {device_names(slots.devices)}."
        )
        return slots

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
            link = connect(engine)
        except SiteError as error:
            raise CommandError(f"Engine “{name}” at {engine.endpoint}: {error}") from error
        look_again(engine, link.facts)
        try_at_start(link)
        return engine
