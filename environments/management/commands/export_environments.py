"""`manage.py export_environments [--engine NAME]`: the configuration that an import would make again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from environments.importing import as_json, docker_engines, export_engine


class Command(BaseCommand):
    help = "Print engines and their environments as JSON, in the nested form of Ocean Node's configuration."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--engine", help="Only this engine (default: all Docker engines).")

    def handle(self, *args: Any, **options: Any) -> None:
        engines = docker_engines()
        if options["engine"]:
            engines = engines.filter(name=options["engine"])
        if not engines:
            names = ", ".join(docker_engines().values_list("name", flat=True)) or "none"
            raise CommandError(f"There is no such engine; there are: {names}.")
        self.stdout.write(as_json([export_engine(engine) for engine in engines]))
