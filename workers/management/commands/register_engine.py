"""`manage.py register_engine NAME ENDPOINT [--host NAME]`: a new engine, detected and probed."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from compute_site.core.errors import SiteError
from workers.management.commands.detect_host import describe
from workers.registration import register_engine


class Command(BaseCommand):
    help = "Register a Docker engine: its host, cores, memory and disk are detected through it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The engine's name: lower-case letters, digits, hyphens.")
        parser.add_argument(
            "endpoint",
            nargs="?",
            default=settings.DOCKER_HOST,
            help="unix:///… or tcp://… (default: DOCKER_HOST).",
        )
        parser.add_argument("--host", help="Name of the machine (default: the engine's name).")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            engine, warnings = register_engine(
                options["name"], options["endpoint"], options["host"] or options["name"]
            )
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        except SiteError as error:
            raise CommandError(str(error)) from error
        describe(self, engine, warnings)
        self.stdout.write("Next: make an environment on it in the admin, then activate the engine.")
